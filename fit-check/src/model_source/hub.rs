//! Models on the Hugging Face Hub, by their names: `owner/name`.
//!
//! The local cache of Hugging Face's libraries comes first. Only what is not in it is asked of the Hub: `config.json` alone,
//! and never weights. Nothing is written. The variables are those of `huggingface_hub` (its page "Environment variables").

use std::path::{Path, PathBuf};
use std::time::Duration;

use etcetera::BaseStrategy;
use ureq::config::RedirectAuthHeaders;

use super::model_files::{CONFIG, LONGEST_CONFIG, text_of};
use crate::user_error::UserError;

/// `HF_ENDPOINT` by default.
const ENDPOINT: &str = "https://huggingface.co";
/// The longest that an answer may take. Chosen: a `config.json` has some kilobytes, and a person waits.
const PATIENCE: Duration = Duration::from_secs(20);
/// The longest owner or name (`REPO_ID_REGEX` in `huggingface_hub/utils/_validators.py`).
const LONGEST_NAME: usize = 96;
/// Who publishes the networks of the zoo under the names that they have there.
const PUBLISHERS: [&str; 8] = [
    "HuggingFaceTB",
    "Qwen",
    "allenai",
    "google",
    "meta-llama",
    "microsoft",
    "mistralai",
    "openai-community",
];

/// Whether `text` can be the name of a model on the Hub, `owner/name`, by the rules of `validate_repo_id` in
/// `huggingface_hub/utils/_validators.py`.
pub(super) fn is_name(text: &str) -> bool {
    let is_part = |part: &str| {
        let known = |c: char| c.is_ascii_alphanumeric() || ['-', '_', '.'].contains(&c);
        (1..=LONGEST_NAME).contains(&part.len())
            && part.chars().all(known)
            && !part.starts_with(['-', '.'])
            && !part.ends_with(['-', '.'])
            && !part.contains("--")
            && !part.contains("..")
    };
    // A file that does not exist is no model either.
    let is_file = [".json", ".safetensors", ".git"]
        .iter()
        .any(|ending| text.ends_with(ending));
    let parts = text.split_once('/');
    parts.is_some_and(|(owner, name)| is_part(owner) && is_part(name)) && !is_file
}

/// What is known of a model on the Hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Its folder in the local cache, which has a `config.json`, and the commit.
    Cached(PathBuf, String),
    /// The text of its `config.json`, and the commit if the Hub says it.
    Fetched(String, Option<String>),
}

/// The Hub as a user has set it up.
#[derive(Clone, Debug)]
pub(super) struct Hub {
    /// The folder of the local cache; none if the system has no folder for it.
    cache: Option<PathBuf>,
    /// The address, without a slash at its end.
    endpoint: String,
    /// The token with which a user may read more than everyone.
    token: Option<String>,
    /// Whether nothing may be asked of the Hub.
    offline: bool,
}

/// The value of an environment variable, unless it is empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl Hub {
    /// The Hub of this user; with `offline` only its local cache.
    pub fn of_user(offline: bool) -> Self {
        let strategy = || etcetera::choose_base_strategy().ok();
        let home = variable("HF_HOME").map(PathBuf::from);
        // `~/.cache` on every system but Windows, and there the same below the user's folder.
        let usual = || match variable("XDG_CACHE_HOME") {
            Some(folder) => Some(PathBuf::from(folder).join("huggingface")),
            None => Some(strategy()?.home_dir().join(".cache/huggingface")),
        };
        let home = home.or_else(usual);
        let cache = variable("HF_HUB_CACHE").or_else(|| variable("HUGGINGFACE_HUB_CACHE"));
        let in_home = |name: &str| home.as_ref().map(|home| home.join(name));
        let endpoint = variable("HF_ENDPOINT").unwrap_or(ENDPOINT.into());
        // What `hf auth login` writes.
        let kept = || {
            let file = variable("HF_TOKEN_PATH").map(PathBuf::from);
            let file = file.or_else(|| in_home("token"))?;
            std::fs::read_to_string(file).ok()
        };
        let token = variable("HF_TOKEN").or_else(kept);
        let token = token.map(|token| token.trim().to_string());
        let truths = ["1", "ON", "YES", "TRUE"];
        let told = variable("HF_HUB_OFFLINE").unwrap_or_default();
        Self {
            cache: cache.map(PathBuf::from).or_else(|| in_home("hub")),
            endpoint: endpoint.trim_end_matches('/').into(),
            token: token.filter(|token| !token.is_empty()),
            offline: offline || truths.contains(&told.to_uppercase().as_str()),
        }
    }

    /// The model called `name`.
    ///
    /// # Errors
    ///
    /// It is neither in the local cache nor given out by the Hub; the error says why, and what to do.
    pub fn find(&self, name: &str) -> Result<Found, UserError> {
        match self.cached(name) {
            Some((folder, commit)) => Ok(Found::Cached(folder, commit)),
            None if self.offline => Err(UserError::new(format!(
                "`{name}` is no path here, nor in the local Hugging Face cache{}",
                self.cache_folder()
            ))
            .hint(self.by_hand(
                name,
                &format!(
                    "without --offline or HF_HUB_OFFLINE {} is asked",
                    self.host()
                ),
            ))),
            None => self.fetch(name),
        }
    }

    fn cache_folder(&self) -> String {
        let folder = self.cache.as_deref().map(Path::display);
        folder.map_or(String::new(), |folder| format!(", {folder}"))
    }

    /// The folder of `name` in the local cache, and its commit: that to which the branch `main` led last.
    fn cached(&self, name: &str) -> Option<(PathBuf, String)> {
        let folder = format!("models--{}", name.replace('/', "--"));
        let folder = self.cache.as_deref()?.join(folder);
        let commit = std::fs::read_to_string(folder.join("refs/main")).ok()?;
        let commit = commit.trim();
        if commit.is_empty() || !commit.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return None;
        }
        let snapshot = folder.join("snapshots").join(commit);
        let has_config = snapshot.join(CONFIG).exists();
        has_config.then(|| (snapshot, commit.into()))
    }

    /// The address without its scheme.
    pub fn host(&self) -> &str {
        let host = self.endpoint.split_once("://");
        host.map_or(&self.endpoint, |(_, host)| host)
    }

    fn fetch(&self, name: &str) -> Result<Found, UserError> {
        let host = self.host();
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .redirect_auth_headers(RedirectAuthHeaders::SameHost)
            .timeout_global(Some(PATIENCE))
            .user_agent(concat!("fit-check/", env!("CARGO_PKG_VERSION")))
            .build()
            .into();
        let mut request = agent.get(format!("{}/{name}/resolve/main/{CONFIG}", self.endpoint));
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let unreachable = |error: ureq::Error| {
            UserError::new(format!(
                "cannot get {CONFIG} of `{name}` from {host}: {error}"
            ))
            .hint(self.by_hand(name, "HF_ENDPOINT names a mirror"))
        };
        let mut response = request.call().map_err(unreachable)?;
        let header = |name: &str| {
            let value = response.headers().get(name)?.to_str().ok()?;
            Some(value.to_string())
        };
        let (code, commit) = (header("x-error-code"), header("x-repo-commit"));
        let status = response.status().as_u16();
        if status != 200 {
            return Err(self.refused(name, status, code.as_deref().unwrap_or_default()));
        }
        let body = response.body_mut().with_config().limit(LONGEST_CONFIG);
        let bytes = body.read_to_vec().map_err(unreachable)?;
        let text = text_of(Path::new(&format!("{name}/{CONFIG}")), &bytes)?;
        Ok(Found::Fetched(text, commit))
    }

    /// The error of an answer with this `status` and this `code`, the header `X-Error-Code` (`hf_raise_for_status` in
    /// `huggingface_hub/utils/_http.py`).
    fn refused(&self, name: &str, status: u16, code: &str) -> UserError {
        let host = self.host();
        let whose = match self.token {
            Some(_) => "that your token can read",
            None => "that everyone can read",
        };
        match (status, code) {
            (_, "GatedRepo") | (403, _) => UserError::new(format!(
                "`{name}` is gated: {host} gives its files only to those who have agreed to its terms"
            ))
            .hint(self.by_hand(
                name,
                &format!(
                    "agree on {}/{name}, and set HF_TOKEN or `hf auth login`",
                    self.endpoint
                ),
            )),
            (404, "EntryNotFound") => {
                UserError::new(format!("`{name}` has no {CONFIG} on {host}")).hint(format!(
                    "name the model that it was made from, which its page on {} tells",
                    self.endpoint
                ))
            }
            // The Hub answers 401 about what does not exist, so that nobody learns what is private.
            (401 | 404, _) => UserError::new(format!(
                "`{name}` is no path here, and {host} has no such model {whose}"
            ))
            .hint(self.by_hand(
                name,
                "a name is as on the model's page; HF_TOKEN or `hf auth login` opens private ones",
            )),
            _ => UserError::new(format!(
                "{host} answered with status {status} when asked for {CONFIG} of `{name}`"
            ))
            .hint(self.by_hand(name, "try again later")),
        }
    }

    /// The hint `first`, and what needs no network.
    fn by_hand(&self, name: &str, first: &str) -> String {
        let of_zoo = in_zoo(name).map_or(String::new(), |network| {
            format!("; the zoo has {network} in burn, which needs no file")
        });
        format!("{first}; or download its {CONFIG} and give the path{of_zoo}")
    }
}

/// The network of the zoo that its publisher calls `name`.
fn in_zoo(name: &str) -> Option<&'static str> {
    let (owner, model) = name.split_once('/')?;
    let variant = model_zoo::find(model).ok()?;
    PUBLISHERS.contains(&owner).then_some(variant.name)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::thread::JoinHandle;

    use super::*;

    /// Names of `REPO_ID_REGEX` and what `validate_repo_id` refuses.
    #[test]
    fn names_are_those_of_the_hub() {
        for name in [
            "Qwen/Qwen3-0.6B",
            "openai-community/gpt2",
            "a/b",
            "01-ai/Yi_6B",
        ] {
            assert!(is_name(name), "{name}");
        }
        for other in [
            "gpt2",
            "./gpt2",
            "../gpt2",
            "a/b/c",
            "/gpt2",
            "a/",
            "a/-b",
            "a/b--c",
            "a/b..c",
            "a/b c",
            "a/b.json",
            "a/model.safetensors",
            "a/b.git",
            "a/b?c",
            "a\\b",
        ] {
            assert!(!is_name(other), "{other}");
        }
        assert!(!is_name(&format!("a/{}", "b".repeat(LONGEST_NAME + 1))));
    }

    /// A server of one answer. It returns the request.
    fn server(answer: &'static str) -> (String, JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let serve = move || {
            let (mut stream, _) = listener.accept().unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let request: Vec<_> = lines
                .map(Result::unwrap)
                .take_while(|line| !line.is_empty())
                .collect();
            stream.write_all(answer.as_bytes()).unwrap();
            request.join("\n")
        };
        (address, std::thread::spawn(serve))
    }

    fn hub(endpoint: &str) -> Hub {
        Hub {
            cache: None,
            endpoint: endpoint.into(),
            token: None,
            offline: false,
        }
    }

    #[test]
    fn only_the_configuration_is_asked_for_with_the_token() {
        let (address, served) = server(
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Repo-Commit: c0ffee\r\nConnection: close\r\n\r\n{}",
        );
        let hub = Hub {
            token: Some("hf_secret".into()),
            ..hub(&address)
        };
        let found = hub.find("Qwen/Qwen3-0.6B").unwrap();
        assert_eq!(found, Found::Fetched("{}".into(), Some("c0ffee".into())));
        let request = served.join().unwrap();
        // Capitals are as typed.
        assert!(
            request.starts_with("GET /Qwen/Qwen3-0.6B/resolve/main/config.json HTTP/1.1\n"),
            "{request}"
        );
        let request = request.to_lowercase();
        assert!(
            request.contains("authorization: bearer hf_secret"),
            "{request}"
        );
    }

    /// The answers are those of huggingface.co: the statuses and headers that `hf_raise_for_status` tells apart.
    #[test]
    fn each_refusal_has_an_error_and_a_hint() {
        for (answer, error, hint) in [
            (
                "HTTP/1.1 401 Unauthorized\r\nX-Error-Code: GatedRepo\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                "`meta-llama/Llama-3.2-1B` is gated",
                "set HF_TOKEN",
            ),
            (
                "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                "is gated",
                "the zoo has llama-3.2-1b in burn, which needs no file",
            ),
            (
                "HTTP/1.1 401 Unauthorized\r\nX-Error-Code: RepoNotFound\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                "has no such model that everyone can read",
                "as on the model's page",
            ),
            (
                "HTTP/1.1 404 Not Found\r\nX-Error-Code: RepoNotFound\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                "has no such model",
                "download its config.json and give the path",
            ),
            (
                "HTTP/1.1 404 Not Found\r\nX-Error-Code: EntryNotFound\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                "has no config.json",
                "the model that it was made from",
            ),
            (
                "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                "answered with status 503",
                "try again later",
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 15\r\nConnection: close\r\n\r\n<!doctype html>",
                "is an HTML page",
                "",
            ),
            ("no HTTP at all", "cannot get config.json of", "HF_ENDPOINT"),
        ] {
            let (address, served) = server(answer);
            let refused = hub(&address).find("meta-llama/Llama-3.2-1B").unwrap_err();
            let refused = refused.to_string();
            let (first, second) = refused.split_once("\nhint: ").unwrap();
            assert!(first.contains(error), "{answer}: {refused}");
            assert!(second.contains(hint), "{answer}: {refused}");
            served.join().unwrap();
        }
    }

    #[test]
    fn a_server_that_is_not_there_is_named() {
        // A port that was free a moment ago.
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let refused = hub(&format!("http://{address}")).find("a/b").unwrap_err();
        let refused = refused.to_string();
        assert!(
            refused.contains(&format!("cannot get config.json of `a/b` from {address}")),
            "{refused}"
        );
    }

    #[test]
    fn the_local_cache_comes_first_and_offline_alone() {
        let folder = tempfile::tempdir().unwrap();
        let offline = Hub {
            cache: Some(folder.path().into()),
            offline: true,
            ..hub("http://127.0.0.1:1")
        };
        let missing = offline.find("Qwen/Qwen3-0.6B").unwrap_err().to_string();
        assert!(
            missing.contains("nor in the local Hugging Face cache"),
            "{missing}"
        );
        assert!(missing.contains("the zoo has qwen3-0.6b"), "{missing}");
        let model = folder.path().join("models--Qwen--Qwen3-0.6B");
        let snapshot = model.join("snapshots/c1899de2");
        fs::create_dir_all(&snapshot).unwrap();
        fs::create_dir_all(model.join("refs")).unwrap();
        fs::write(model.join("refs/main"), "c1899de2").unwrap();
        assert!(
            offline.find("Qwen/Qwen3-0.6B").is_err(),
            "no configuration yet"
        );
        fs::write(snapshot.join(CONFIG), "{}").unwrap();
        let online = Hub {
            offline: false,
            ..offline.clone()
        };
        let found = Found::Cached(snapshot, "c1899de2".into());
        for hub in [offline, online] {
            assert_eq!(hub.find("Qwen/Qwen3-0.6B").unwrap(), found);
            assert!(
                hub.find("qwen/qwen3-0.6b").is_err(),
                "capitals are as typed"
            );
        }
    }
}
