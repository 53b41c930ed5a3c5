//! The timeline: what the demo does, as it does it. A moving line where a terminal shows it, plain
//! lines elsewhere; with `--json` on stderr, so that stdout is the report's alone.

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::screen::{Screen, printable};

const FRAMES: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
const FRAME: Duration = Duration::from_millis(100);
/// Where there is no moving line, one plain line says that the work goes on.
const PLAIN_LINE: Duration = Duration::from_secs(5);

/// Cheap to clone.
#[derive(Clone)]
pub struct Telling {
    board: Arc<Mutex<Board>>,
    screen: Screen,
    began: Instant,
}

struct Board {
    to_stderr: bool,
    moving: bool,
    working: Option<Working>,
    /// The reader has gone; the demo goes on, to tidy up in the end.
    silent: bool,
}

struct Working {
    text: String,
    since: Instant,
    frame: usize,
    said: Instant,
}

/// While it lives, the timeline says that this is being done.
pub struct Busy {
    board: Arc<Mutex<Board>>,
    since: Instant,
    ticker: JoinHandle<Option<()>>,
}

impl Telling {
    pub fn new(screen: Screen) -> Self {
        let to_stderr = screen.json();
        let moving = if to_stderr { io::stderr().is_terminal() } else { io::stdout().is_terminal() };
        let board = Board { to_stderr, moving, working: None, silent: false };
        Self { board: Arc::new(Mutex::new(board)), screen, began: Instant::now() }
    }

    pub fn heading(&self, text: &str) {
        self.put("");
        self.put(&self.screen.bold(text));
    }

    pub fn good(&self, text: &str) {
        self.mark(&self.screen.green("✓"), text);
    }

    pub fn bad(&self, text: &str) {
        self.mark(&self.screen.warning("✗"), text);
    }

    /// Something that is neither, but worth knowing.
    pub fn note(&self, text: &str) {
        self.mark(&self.screen.dim("·"), text);
    }

    pub fn table(&self, head: &[&str], rows: &[Vec<String>]) {
        self.put("");
        for line in crate::screen::table_lines(head, rows) {
            self.put(&format!("      {line}"));
        }
    }

    pub fn text(&self, text: &str) {
        self.put(text);
    }

    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Says that `text` is being done until the returned value is dropped.
    pub fn busy(&self, text: &str) -> Busy {
        let since = Instant::now();
        let working = Working { text: text.to_owned(), since, frame: 0, said: since };
        self.lock().working = Some(working);
        let board = Arc::clone(&self.board);
        let ticker = hearth_telemetry::task::spawn("demo timeline", async move {
            let mut ticks = tokio::time::interval(FRAME);
            loop {
                ticks.tick().await;
                board.lock().unwrap_or_else(PoisonError::into_inner).tick();
            }
        });
        Busy { board: Arc::clone(&self.board), since, ticker }
    }

    fn mark(&self, mark: &str, text: &str) {
        let at = self.began.elapsed().as_secs_f64();
        self.put(&format!("  {} {mark} {}", self.screen.dim(&format!("{at:>5.1}s")), printable(text)));
    }

    fn put(&self, line: &str) {
        self.lock().put(line);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Busy {
    pub fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.ticker.abort();
        let mut board = self.board.lock().unwrap_or_else(PoisonError::into_inner);
        board.clear();
        board.working = None;
    }
}

impl Board {
    fn put(&mut self, line: &str) {
        self.clear();
        self.write(&format!("{line}\n"));
        self.draw();
    }

    fn tick(&mut self) {
        let plain = !self.moving;
        let Some(working) = &mut self.working else { return };
        working.frame = (working.frame + 1) % FRAMES.len();
        if plain && working.said.elapsed() >= PLAIN_LINE {
            working.said = Instant::now();
            let line = format!("         … {} ({} s)\n", working.text, working.since.elapsed().as_secs());
            self.write(&line);
        } else {
            self.draw();
        }
    }

    fn draw(&mut self) {
        if let (true, Some(working)) = (self.moving, &self.working) {
            let seconds = working.since.elapsed().as_secs_f64();
            let line = format!("\r\u{1b}[2K         {} {} {seconds:.1}s", FRAMES[working.frame], working.text);
            self.write(&line);
        }
    }

    fn clear(&mut self) {
        if self.moving && self.working.is_some() {
            self.write("\r\u{1b}[2K");
        }
    }

    fn write(&mut self, text: &str) {
        if self.silent {
            return;
        }
        let written = if self.to_stderr {
            io::stderr().lock().write_all(text.as_bytes())
        } else {
            let mut out = io::stdout().lock();
            out.write_all(text.as_bytes()).and_then(|()| out.flush())
        };
        self.silent = written.is_err();
    }
}

/// `3.97 s`, `120 ms`.
pub fn shown(span: Duration) -> String {
    if span >= Duration::from_secs(1) {
        format!("{:.2} s", span.as_secs_f64())
    } else {
        format!("{} ms", span.as_millis())
    }
}

/// `1 file`, `2 files`, `2 processes`.
pub fn counted(count: usize, noun: &str) -> String {
    let ending = match (count, noun.ends_with('s')) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{count} {noun}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_counts_read_well() {
        assert_eq!([shown(Duration::from_millis(3_966)), shown(Duration::from_millis(120))], ["3.97 s", "120 ms"]);
        assert_eq!(
            [counted(1, "file"), counted(5, "file"), counted(0, "process")],
            ["1 file", "5 files", "0 processes"]
        );
    }
}
