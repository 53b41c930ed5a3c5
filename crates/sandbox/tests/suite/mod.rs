//! What every driver has to do, seen through the session service. `tests/docker.rs` and
//! `tests/node_local.rs` run it on real sessions.

pub mod bench;
pub mod commands;
pub mod files;
pub mod life;
pub mod pool;
pub mod sharing;

/// One test per name, each on a bench of its own; skipped where the place cannot be had.
#[macro_export]
macro_rules! behaves {
    ($place:path; $($module:ident::$name:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                if let Some(place) = $place().await {
                    suite::$module::$name(place).await;
                }
            }
        )*
    };
}
