//! Pages for a browser.

use maud::{DOCTYPE, Markup, PreEscaped, html};

/// A self-contained page that is readable on a phone: `title` on its tab, `body` in `style`.
pub(crate) fn document(title: &str, style: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(style)) }
            }
            body { (body) }
        }
    };
    format!("{}\n", page.into_string())
}
