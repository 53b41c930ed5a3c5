//! The console at `/`: static files that answer without a token and hold nothing of any run. The
//! page asks for a token and calls the interface like any other client.

use axum::extract::Request;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};

use super::table::Table;

/// Path, content type, text.
const FILES: &[(&str, &str, &str)] = &[
    ("/", "text/html; charset=utf-8", include_str!("console/index.html")),
    ("/console/console.css", "text/css; charset=utf-8", include_str!("console/console.css")),
    ("/console/hearth.svg", "image/svg+xml", include_str!("console/hearth.svg")),
    ("/console/main.js", JAVASCRIPT, include_str!("console/main.js")),
    ("/console/api.js", JAVASCRIPT, include_str!("console/api.js")),
    ("/console/dom.js", JAVASCRIPT, include_str!("console/dom.js")),
    ("/console/lists.js", JAVASCRIPT, include_str!("console/lists.js")),
    ("/console/run.js", JAVASCRIPT, include_str!("console/run.js")),
    ("/console/timeline.js", JAVASCRIPT, include_str!("console/timeline.js")),
];

const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

/// Only files of this origin run and load; nothing inline, no frame around the page, no form that
/// leaves it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

pub fn routes(table: Table) -> Table {
    FILES.iter().fold(table, |table, (path, ..)| table.file(path, serve))
}

async fn serve(request: Request) -> Response {
    let path = request.uri().path();
    let Some((_, kind, text)) = FILES.iter().find(|(known, ..)| *known == path) else {
        return super::reply::Refusal::from(hearth_types::Fault::not_found()).into_response();
    };
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        // A new version of the program brings new files under the same names.
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    (headers, *text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_is_referred_to_is_served() {
        let served: Vec<&str> = FILES.iter().map(|(path, ..)| *path).collect();
        for (path, _, text) in FILES {
            for reference in text.split(['"', '\'']).filter(|part| part.starts_with("/console/")) {
                assert!(served.contains(&reference), "{path} refers to {reference}");
            }
        }
    }

    #[test]
    fn data_never_becomes_markup_or_code() {
        for (path, _, text) in FILES {
            for way in
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "srcdoc"]
            {
                assert!(!text.contains(way), "{path} uses {way}");
            }
        }
        let page = FILES[0].2;
        assert!(!page.contains("<style") && !page.contains(" style=") && !page.contains(" onclick="));
        assert_eq!(page.matches("<script").count(), page.matches("<script type=\"module\" src=").count());
    }

    #[test]
    fn nothing_is_loaded_from_elsewhere() {
        for (path, _, text) in FILES {
            let text = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!text.contains("http://") && !text.contains("https://") && !text.contains("\"//"), "{path}");
        }
    }
}
