//! The client against a small scripted server.

#[cfg(test)]
mod repeats;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod support;
