//! Models by their names on the Hugging Face Hub, which a server of this test stands for.

mod command;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::Output;
use std::sync::mpsc::{Receiver, channel};

use command::fit_check;

/// A server that gives everyone the configuration of `tiny-llama`, and tells what it was asked for.
fn server() -> (String, Receiver<String>) {
    let config = include_str!("own_models/tiny-llama/config.json");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (sender, asked) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let first = lines.next().unwrap().unwrap();
            // The rest of the request has to be read before the connection is closed.
            let _ = lines.find(|line| line.as_ref().is_ok_and(String::is_empty));
            let length = config.len();
            let head =
                format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(config.as_bytes()).unwrap();
            if sender.send(first).is_err() {
                return;
            }
        }
    });
    (address, asked)
}

fn run(endpoint: &str, arguments: &str) -> Output {
    let cache = tempfile::tempdir().unwrap();
    let mut command = fit_check();
    command
        .args(arguments.split(' '))
        .env("HF_ENDPOINT", endpoint)
        .env("HF_HUB_CACHE", cache.path())
        .env("HF_HUB_OFFLINE", "0")
        .env_remove("HF_TOKEN")
        .env_remove("ALL_PROXY")
        .env_remove("all_proxy")
        .env_remove("HTTP_PROXY")
        .env_remove("http_proxy");
    command.output().unwrap()
}

const ASKED: [&str; 1] = ["GET /Someone/Tiny-Llama/resolve/main/config.json HTTP/1.1"];

fn answer(endpoint: &str, arguments: &str) -> String {
    let output = run(endpoint, &format!("{arguments} --format json --quiet"));
    let text = String::from_utf8(output.stdout).unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!text.is_empty(), "{error}");
    text
}

#[test]
fn a_name_is_the_model_with_its_configuration() {
    let (endpoint, asked) = server();
    // Without weights, as on the server.
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.json");
    std::fs::write(&config, include_str!("own_models/tiny-llama/config.json")).unwrap();
    let estimate = |model: &str| {
        let question = format!("estimate {model} --seq 8 --batch 1 --advise=never");
        answer(&endpoint, &question)
    };
    let named = estimate("Someone/Tiny-Llama");
    assert_eq!(asked.try_iter().collect::<Vec<_>>(), ASKED);
    assert!(named.contains("\"Someone/Tiny-Llama\""), "{named}");
    let host = endpoint.strip_prefix("http://").unwrap();
    assert!(
        named.contains(&format!("config.json from {host}")),
        "{named}"
    );
    let name = folder.path().file_name().unwrap().to_str().unwrap();
    let named = named.replace("Someone/Tiny-Llama", name);
    let of_file = estimate(config.to_str().unwrap());
    assert_eq!(without_notes(&named), without_notes(&of_file));
}

/// A process of a table's row has the model without asking for it again.
#[test]
fn a_table_asks_once() {
    let (endpoint, asked) = server();
    let table = "table Someone/Tiny-Llama --seq 64 --memory 9MiB --tuning cold";
    let table = answer(&endpoint, table);
    let table: serde_json::Value = serde_json::from_str(&table).unwrap();
    let cell = &table["rows"][0]["cells"][0];
    assert!(cell["max_batch"].is_u64(), "{cell}");
    assert_eq!(asked.try_iter().collect::<Vec<_>>(), ASKED);
}

/// An answer without the notes on its model, of which one says where the configuration comes from.
fn without_notes(answer: &str) -> serde_json::Value {
    fn strip(value: &mut serde_json::Value) {
        match value {
            serde_json::Value::Object(fields) => {
                fields.remove("notes");
                fields.values_mut().for_each(strip);
            }
            serde_json::Value::Array(values) => values.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let mut answer = serde_json::from_str(answer).unwrap();
    strip(&mut answer);
    answer
}

#[test]
fn offline_nobody_is_asked() {
    let (endpoint, asked) = server();
    let output = run(&endpoint, "estimate Someone/Tiny-Llama --offline");
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("nor in the local Hugging Face cache"),
        "{error}"
    );
    assert_eq!(asked.try_iter().count(), 0);
}
