//! What L1 does not hold on this host, in words.

use super::confine::{Confinement, Ground};

pub fn notice(ground: &Ground) -> String {
    let mut text = match ground.confinement {
        Confinement::Bwrap { .. } => "L1, bubblewrap: own processes, files and network; the kernel is shared, and the \
             host's programs and toolchains can be read. CPU is not limited, memory only for each process"
            .to_owned(),
        Confinement::Process { cut_network } => {
            let network = if cut_network {
                "the network is cut unless asked for"
            } else {
                "the host's network can be reached, whatever `network` says"
            };
            format!(
                "L1, process: no file system or process confinement, {network}. Code sees what its user may see on \
                 this host. CPU and the size of /work are not limited, memory only for each process"
            )
        }
    };
    if let Confinement::Bwrap { sized: false, .. } = ground.confinement {
        text.push_str(", the size of /work not at all");
    }
    match (&ground.confinement, ground.user) {
        // Counted by the kernel for the session's own user namespace.
        (Confinement::Bwrap { .. }, None) => text.push('.'),
        (_, None) if ground.root => text.push_str(", processes not at all. Code runs as root."),
        _ => text.push_str(", processes not at all."),
    }
    text
}
