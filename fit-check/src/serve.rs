//! `fit-check serve`: a page to ask from, for browsers on this machine.
//!
//! The server computes nothing. Each question starts this program once more, with `--format json`, and what it prints goes to
//! the page. A page that asks something else, or closes, closes its connection, and that ends the program.

mod answer;
mod question;

use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use serde_json::{Value, json};
use tiny_http::{Header, Method, Request, Response, Server};

use self::question::{Command, Question};
use crate::exit_status::FITS;
use crate::interrupt;
use crate::user_error::UserError;

/// The files of the page: path, type and content.
const FILES: [(&str, &str, &str); 3] = [
    (
        "/",
        "text/html; charset=utf-8",
        include_str!("serve/page.html"),
    ),
    (
        "/page.css",
        "text/css; charset=utf-8",
        include_str!("serve/page.css"),
    ),
    (
        "/page.js",
        "text/javascript; charset=utf-8",
        include_str!("serve/page.js"),
    ),
];

/// What the page may load: its own files, and the chart, which its script makes.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src blob: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The most bytes of a question; the largest `config.json` of a published network has some thousand.
const MAX_QUESTION: u64 = 1 << 20;

/// The options of `serve`.
#[derive(Debug, Args)]
pub struct Options {
    /// The port on this machine; 0 takes a free one
    #[arg(
        long,
        default_value = "8327",
        value_name = "PORT",
        allow_hyphen_values = true
    )]
    port: String,
}

/// Serves until a signal ends it.
///
/// # Errors
///
/// The port is not to be had.
pub fn run(options: &Options) -> anyhow::Result<u8> {
    interrupt::watch(Duration::ZERO)?;
    let folder = tempfile::Builder::new()
        .prefix("fit-check-serve-")
        .tempdir()?;
    let path: Arc<Path> = folder.path().into();
    let left = path.clone();
    interrupt::at_end(move || {
        let _ = std::fs::remove_dir_all(left);
        None
    });
    let listener = listen(&options.port)?;
    let port = listener.local_addr()?.port();
    let server = Server::from_listener(listener, None)
        .map_err(anyhow::Error::from_boxed)
        .context("the server cannot start")?;
    anstream::println!("http://127.0.0.1:{port}/");
    anstream::eprintln!("open this address in a browser on this machine; Ctrl-C ends it");
    for request in server.incoming_requests() {
        let path = path.clone();
        std::thread::spawn(move || {
            // An error: the browser has closed the connection.
            let _ = reply(request, port, &path);
        });
    }
    Ok(FITS)
}

/// Takes the port that was typed, for this machine alone.
fn listen(typed: &str) -> Result<TcpListener, UserError> {
    let port: u16 = typed.parse().map_err(|_| {
        UserError::invalid_value("--port", typed).hint("--port is a number from 0 to 65535")
    })?;
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|error| {
        let hint = match error.kind() {
            ErrorKind::AddrInUse => format!(
                "if that is another `fit-check serve`, open http://127.0.0.1:{port}/; otherwise --port 0 takes a free one"
            ),
            ErrorKind::PermissionDenied => {
                "ports below 1024 are the system's: --port 0 takes a free one".to_string()
            }
            _ => "--port 0 takes a free one".to_string(),
        };
        UserError::new(format!("port {port} is not to be had: {error}")).hint(hint)
    })
}

/// Replies to one request; `folder` is for the files of a question.
fn reply(mut request: Request, port: u16, folder: &Path) -> std::io::Result<()> {
    if !is_from_this_machine(request.headers(), port) {
        return request.respond(text(403, "this page is for browsers on this machine"));
    }
    let path = request.url().to_string();
    match (request.method(), Command::of_path(&path)) {
        (Method::Post, Some(command)) => {
            let mut body = String::new();
            let read = request
                .as_reader()
                .take(MAX_QUESTION)
                .read_to_string(&mut body);
            match read
                .ok()
                .and_then(|_| serde_json::from_str::<Question>(&body).ok())
            {
                Some(question) => answer::stream(request.into_writer(), command, question, folder),
                None => request.respond(text(400, "this is no question")),
            }
        }
        (Method::Get, _) if path == "/choices" => match choices() {
            Some(choices) => request.respond(with_type(
                choices.to_string(),
                "application/json; charset=utf-8",
            )),
            None => request.respond(text(500, "fit-check lists no models")),
        },
        (Method::Get, _) => match FILES.iter().find(|(name, ..)| *name == path) {
            Some((_, kind, content)) => request.respond(with_type(*content, kind)),
            None => request.respond(text(404, "there is no such page")),
        },
        _ => request.respond(text(405, "there is nothing to do that with")),
    }
}

/// Whether a request came to this machine by its own name, and from this page. Another page in the same browser can send
/// requests here too, also under a name of its own that leads to this machine.
fn is_from_this_machine(headers: &[Header], port: u16) -> bool {
    let value = |name: &'static str| {
        let mut found = headers.iter().filter(|header| header.field.equiv(name));
        found.next().map(|header| header.value.as_str())
    };
    let hosts = [format!("127.0.0.1:{port}"), format!("localhost:{port}")];
    let is_here = |host: &str| hosts.iter().any(|here| here == host);
    let from_here = |origin: &str| origin.strip_prefix("http://").is_some_and(is_here);
    value("Host").is_some_and(is_here) && value("Origin").is_none_or(from_here)
}

/// What the page offers: the answers of `models` and `gpus`.
fn choices() -> Option<Value> {
    let list = |command: &str| -> Option<Value> {
        let mut program = std::process::Command::new(std::env::current_exe().ok()?);
        let ended = program.args([command, "--format", "json"]).output().ok()?;
        serde_json::from_slice(&ended.stdout).ok()
    };
    Some(json!({"models": list("models")?, "gpus": list("gpus")?}))
}

fn with_type(content: impl Into<Vec<u8>>, kind: &str) -> Response<std::io::Cursor<Vec<u8>>> {
    let headers = [
        ("Content-Type", kind),
        ("Content-Security-Policy", POLICY),
        ("X-Content-Type-Options", "nosniff"),
        ("Cache-Control", "no-store"),
    ];
    let headers = headers
        .iter()
        .filter_map(|(name, value)| Header::from_bytes(*name, *value).ok());
    // The content is here as a whole, so its length is known.
    let response = Response::from_data(content).with_chunked_threshold(usize::MAX);
    headers.fold(response, Response::with_header)
}

fn text(status: u16, content: &str) -> Response<std::io::Cursor<Vec<u8>>> {
    with_type(content, "text/plain; charset=utf-8").with_status_code(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_served(headers: &[(&str, &str)]) -> bool {
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| Header::from_bytes(*name, *value).unwrap())
            .collect();
        is_from_this_machine(&headers, 8327)
    }

    #[test]
    fn other_pages_are_refused() {
        let host = ("Host", "127.0.0.1:8327");
        assert!(is_served(&[host]));
        assert!(is_served(&[host, ("Origin", "http://127.0.0.1:8327")]));
        assert!(is_served(&[("host", "localhost:8327")]));
        assert!(!is_served(&[]));
        assert!(!is_served(&[("Host", "example.org:8327")]));
        assert!(!is_served(&[host, ("Origin", "http://example.org")]));
        assert!(!is_served(&[host, ("Origin", "null")]));
    }

    #[test]
    fn a_port_that_is_taken_is_an_error_with_its_address() {
        let first = listen("0").unwrap();
        let port = first.local_addr().unwrap().port();
        let taken = listen(&port.to_string()).unwrap_err().to_string();
        assert!(taken.contains("is not to be had"), "{taken}");
        assert!(
            taken.contains(&format!("http://127.0.0.1:{port}/")),
            "{taken}"
        );
        let wrong = listen("70000").unwrap_err().to_string();
        assert!(wrong.contains("from 0 to 65535"), "{wrong}");
    }
}
