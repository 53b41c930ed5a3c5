//! See the library: the program is its `run`.

fn main() {
    std::process::exit(hearth_sandbox_init::run(std::env::args_os().skip(1)));
}
