//! Which isolation an engine's runtimes give, by their names. Pure.

use hearth_types::Isolation;

/// The level of a runtime; nothing for one that is not known, which is then not used: what it holds
/// cannot be promised.
pub(crate) fn level(name: &str) -> Option<Isolation> {
    let family = |family: &str| name == family || name.strip_prefix(family).is_some_and(|rest| rest.starts_with('-'));
    if ["runc", "crun", "youki", "io.containerd.runc.v2"].iter().any(|known| family(known)) {
        return Some(Isolation::L2);
    }
    let strong = ["runsc", "kata", "kata-runtime", "io.containerd.runsc.v1", "io.containerd.kata.v2"];
    strong.iter().any(|known| family(known)).then_some(Isolation::L3)
}

/// The runtimes of each level that can be had, the engine's default first in its level and its level
/// first of all.
pub(crate) fn by_level(default: &str, mut names: Vec<String>) -> Vec<(Isolation, Vec<String>)> {
    names.sort_by_key(|name| (name != default, name.starts_with("io."), name.clone()));
    let mut levels: Vec<(Isolation, Vec<String>)> = Vec::new();
    for name in names {
        let Some(level) = level(&name) else { continue };
        match levels.iter_mut().find(|(known, _)| *known == level) {
            Some((_, runtimes)) => runtimes.push(name),
            None => levels.push((level, vec![name])),
        }
    }
    levels
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_runtime_has_the_level_of_its_family() {
        assert_eq!(level("runc"), Some(Isolation::L2));
        assert_eq!(level("runsc"), Some(Isolation::L3));
        assert_eq!(level("kata-qemu"), Some(Isolation::L3));
        for unknown in ["runcx", "nvidia", "io.containerd.runtime.v1.linux", ""] {
            assert_eq!(level(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn the_default_of_the_engine_comes_first() {
        let found = by_level("runc", names(&["io.containerd.runc.v2", "runsc", "crun", "runc", "odd"]));
        assert_eq!(
            found,
            [(Isolation::L2, names(&["runc", "crun", "io.containerd.runc.v2"])), (Isolation::L3, names(&["runsc"]))]
        );
        assert_eq!(by_level("runsc", names(&["runc", "runsc"]))[0].0, Isolation::L3);
    }
}
