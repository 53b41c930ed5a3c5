//! Open files: a server holds a connection for every blocked caller and every stream.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit to the hard one; what the system then allows is what there is.
pub fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if limit.current != limit.maximum {
        // Refused, the lower limit stays: connections past it are turned away, nothing breaks.
        setrlimit(Resource::Nofile, raised).ok();
    }
}
