//! Lists: one page, or all of them as one.

use std::future::Future;

use hearth_client::{Error, Page};
use hearth_types::Timestamp;
use serde_json::Value;

use super::view;
use crate::args::Paging;
use crate::failure::Failure;
use crate::screen::Screen;

/// A page whose rows are under `field`.
pub struct Listed {
    pub field: &'static str,
    pub body: Value,
}

impl Listed {
    pub fn rows(&self) -> &[Value] {
        self.body.get(self.field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }

    /// The server's time of the list.
    pub fn as_of(&self) -> Option<Timestamp> {
        view::time(&self.body, "as_of")
    }

    /// Shows the rows as a table, or the object as it is.
    pub fn show(
        &self,
        screen: &Screen,
        nothing: &str,
        head: &[&str],
        row: impl Fn(&Value) -> Vec<String>,
    ) -> Result<(), Failure> {
        if screen.json() {
            return screen.document(&self.body);
        }
        if self.rows().is_empty() {
            screen.line(nothing)?;
        } else {
            screen.table(head, &self.rows().iter().map(row).collect::<Vec<_>>())?;
        }
        if self.body.get("partial").and_then(Value::as_bool).unwrap_or(false) {
            screen.complain("not complete: a store could not be asked");
        }
        if let Some(cursor) = self.body.get("next_cursor").and_then(Value::as_str) {
            screen.complain(&format!("there is more: --cursor {cursor} goes on, --all shows all"));
        }
        Ok(())
    }
}

/// Asks for one page, or with `--all` for each and puts their rows into one object.
pub async fn fetch<F>(paging: &Paging, field: &'static str, ask: impl Fn(Page) -> F) -> Result<Listed, Failure>
where
    F: Future<Output = Result<Value, Error>>,
{
    let mut page = Page { limit: paging.limit, cursor: paging.cursor.clone() };
    if paging.all && page.limit.is_none() {
        page.limit = Some(hearth_types::limits::LIST_LIMIT_MAX);
    }
    let mut whole = ask(page.clone()).await?;
    while paging.all
        && let Some(cursor) = whole.get("next_cursor").and_then(Value::as_str).map(str::to_owned)
    {
        page.cursor = Some(cursor);
        let mut next = ask(page.clone()).await?;
        let partial = whole.get("partial").or(next.get("partial")).cloned();
        let mut rows = whole[field].take();
        if let (Some(rows), Some(more)) = (rows.as_array_mut(), next[field].as_array_mut()) {
            rows.append(more);
        }
        next[field] = rows;
        if let Some(partial) = partial {
            next["partial"] = partial;
        }
        whole = next;
    }
    Ok(Listed { field, body: whole })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn all_pages_become_one_list() {
        let ask = |page: Page| async move {
            Ok(match page.cursor.as_deref() {
                None => json!({ "runs": [1, 2], "next_cursor": "a", "as_of": "x", "partial": true }),
                Some("a") => json!({ "runs": [3], "next_cursor": null, "as_of": "y" }),
                Some(other) => panic!("{other}"),
            })
        };
        let all = Paging { limit: None, cursor: None, all: true };
        let whole = fetch(&all, "runs", ask).await.unwrap().body;
        assert_eq!(whole, json!({ "runs": [1, 2, 3], "next_cursor": null, "as_of": "y", "partial": true }));
        let one = Paging { all: false, ..all };
        assert_eq!(fetch(&one, "runs", ask).await.unwrap().rows().len(), 2);
    }
}
