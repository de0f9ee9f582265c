//! The page to ask from: what it shows is what the command line says.
#![cfg(unix)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_fit-check");

/// A server, which ends when it is dropped, and leaves no files.
struct Server {
    process: Child,
    port: u16,
    temporary: tempfile::TempDir,
}

impl Server {
    fn start() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let mut process = Command::new(PROGRAM)
            .args(["serve", "--port", "0"])
            .env("TMPDIR", temporary.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut address = String::new();
        let mut said = BufReader::new(process.stdout.take().unwrap());
        said.read_line(&mut address).unwrap();
        let port = address.trim().strip_prefix("http://127.0.0.1:").unwrap();
        let port = port.strip_suffix('/').unwrap().parse().unwrap();
        Self {
            process,
            port,
            temporary,
        }
    }

    /// Sends a request whose first line is `line`.
    fn send(&self, line: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let (port, length) = (self.port, body.len());
        write!(
            stream,
            "{line} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n{body}"
        )
        .unwrap();
        stream
    }

    /// The whole reply.
    fn reply(&self, line: &str, body: &str) -> String {
        let mut text = Vec::new();
        self.send(line, body).read_to_end(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    /// The messages of an answer, one JSON object a line.
    fn ask(&self, command: &str, question: &str) -> Vec<Value> {
        let reply = self.reply(&format!("POST /{command}"), question);
        let lines = reply.lines().filter(|line| line.starts_with('{'));
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// The processes that it has started and that run.
    fn children(&self) -> Vec<String> {
        let id = self.process.id();
        let found = Command::new("ps")
            .args(["--ppid", &id.to_string(), "-o", "args="])
            .output()
            .unwrap();
        let text = String::from_utf8(found.stdout).unwrap();
        text.lines().map(str::to_string).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        use nix::sys::signal::{Signal, kill};
        let id = nix::unistd::Pid::from_raw(self.process.id() as i32);
        kill(id, Signal::SIGTERM).unwrap();
        let status = self.process.wait().unwrap();
        if !std::thread::panicking() {
            assert_eq!(status.code(), Some(128 + 15));
            let left = std::fs::read_dir(self.temporary.path()).unwrap().count();
            assert_eq!(left, 0, "files are left");
        }
    }
}

/// What the program itself prints.
fn printed(arguments: &str) -> Value {
    let ended = Command::new(PROGRAM)
        .args(arguments.split(' '))
        .args(["--format", "json", "--quiet"])
        .output()
        .unwrap();
    serde_json::from_slice(&ended.stdout).unwrap()
}

#[test]
fn the_page_gets_what_the_command_line_says() {
    let server = Server::start();
    let question =
        r#"{"model": "resnet-20", "precision": "mixed", "batch": 8, "gpus": ["l4", "t4"]}"#;
    let messages = server.ask("estimate", question);
    let last = messages.last().unwrap();
    let job = "resnet-20 --precision mixed --gpu l4 --gpu t4";
    assert_eq!(
        last["answer"],
        printed(&format!("estimate {job} --batch 8"))
    );
    assert!(last["svg"].as_str().unwrap().starts_with("<svg"));
    let largest = r#"{"model": "resnet-20", "precision": "mixed", "gpus": ["l4", "t4"]}"#;
    let messages = server.ask("max-batch", largest);
    let expected = printed(&format!("max-batch {job}"));
    assert_eq!(messages.last().unwrap()["answer"], expected);
}

#[test]
fn a_config_file_is_a_model() {
    let server = Server::start();
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/own_models/tiny-bert/config.json"
    );
    let config = std::fs::read_to_string(path).unwrap();
    let question = serde_json::json!({
        "model": "", "config": config, "precision": "fp32", "batch": 2, "seq": 16, "gpus": ["l4"]
    });
    let messages = server.ask("estimate", &question.to_string());
    let answer = &messages.last().unwrap()["answer"];
    let expected = printed(&format!("estimate {path} --batch 2 --seq 16 --gpu l4"));
    assert_eq!(answer["peak"], expected["peak"]);
    assert_eq!(answer["fits"], true);
}

#[test]
fn a_wrong_question_has_an_error_and_a_hint() {
    let server = Server::start();
    let messages = server.ask(
        "estimate",
        r#"{"model": "resnt-50", "precision": "fp32", "gpus": ["l4"]}"#,
    );
    let last = messages.last().unwrap();
    assert_eq!(last["error"], "unknown model `resnt-50`");
    assert!(last["hint"].as_str().unwrap().contains("resnet-50"));
    let reply = server.reply("POST /estimate", r#"{"output": "/tmp/x"}"#);
    assert!(reply.starts_with("HTTP/1.1 400 "), "{reply}");
}

#[test]
fn a_closed_page_ends_the_program_that_it_asked() {
    let server = Server::start();
    let question = r#"{"model": "resnet-152", "precision": "fp32", "gpus": ["a100-80gb"]}"#;
    let page = server.send("POST /max-batch", question);
    let wait = |condition: &dyn Fn() -> bool| {
        let start = Instant::now();
        while !condition() && start.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(condition(), "{:?}", server.children());
    };
    wait(&|| !server.children().is_empty());
    drop(page);
    wait(&|| server.children().is_empty());
}

#[test]
fn the_page_loads_nothing_from_elsewhere() {
    let server = Server::start();
    for path in ["/", "/page.css", "/page.js"] {
        let reply = server.reply(&format!("GET {path}"), "");
        assert!(reply.starts_with("HTTP/1.1 200 "), "{path}: {reply}");
        assert!(reply.contains("default-src 'none'"), "{path}");
        let (_, content) = reply.split_once("\r\n\r\n").unwrap();
        assert!(!content.contains("://"), "{path} has an address");
    }
    let choices = server.reply("GET /choices", "");
    let (_, choices) = choices.split_once("\r\n\r\n").unwrap();
    let choices: Value = serde_json::from_str(choices).unwrap();
    assert_eq!(choices["models"], printed("models"));
    assert_eq!(choices["gpus"], printed("gpus"));
    assert!(
        server
            .reply("GET /../Cargo.toml", "")
            .starts_with("HTTP/1.1 404 ")
    );
}

#[test]
fn a_second_server_is_told_of_the_first() {
    let server = Server::start();
    let ended = Command::new(PROGRAM)
        .args(["serve", "--port", &server.port.to_string()])
        .output()
        .unwrap();
    assert_eq!(ended.status.code(), Some(2));
    let stderr = String::from_utf8(ended.stderr).unwrap();
    assert!(stderr.contains("error: port "), "{stderr}");
    let address = format!("open http://127.0.0.1:{}/", server.port);
    assert!(stderr.contains(&address), "{stderr}");
}
