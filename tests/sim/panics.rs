//! A panic anywhere in a simulated cluster is a breach, whoever catches it.

use std::cell::RefCell;
use std::sync::Once;

thread_local! {
    /// The first panic on this thread since it was last asked; `None` where nobody watches.
    static SEEN: RefCell<Option<Option<String>>> = const { RefCell::new(None) };
}

static HOOK: Once = Once::new();

/// Notes panics on this thread from now on.
pub fn watch() {
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let watched = SEEN.with_borrow_mut(|seen| match seen {
                Some(first) => {
                    first.get_or_insert_with(|| format!("a panic: {info}"));
                    true
                }
                None => false,
            });
            if !watched {
                usual(info);
            }
        }));
    });
    SEEN.set(Some(None));
}

/// The first panic since the watch began, which ends.
pub fn seen() -> Option<String> {
    SEEN.take().flatten()
}
