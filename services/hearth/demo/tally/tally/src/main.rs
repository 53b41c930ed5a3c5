//! `tally EXPRESSION…` prints what each comes to.

fn main() {
    for text in std::env::args().skip(1) {
        match tally::evaluate(&text) {
            Ok(number) => println!("{number}"),
            Err(error) => println!("{text}: {error}"),
        }
    }
}
