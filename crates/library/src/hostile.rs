//! Whatever the files of the agents folder hold, they are read or refused with their name.

use proptest::prelude::*;

use crate::{Library, SourceFile, check, parse};

const GOOD: [(&str, &str); 3] = [
    (
        "chat/medium.md",
        "---\ndescription: Talks\nmodel: x\ntools: [Agent, mcp__sandbox__*]\nskills: [write]\nmax_iterations: 3\n\
         sandbox: {scope: own, network: none, limits: {mem_mb: 64}}\n---\nYou talk.\n",
    ),
    ("twice.js", "/*\ndescription: Asks twice\ntools: [Agent]\n*/\nfunction run(input) { return input }\n"),
    ("skills/write/SKILL.md", "---\nname: write\ndescription: Writes\n---\nWrite well.\n"),
];

fn file(path: &str, bytes: Vec<u8>) -> SourceFile {
    SourceFile { path: path.to_owned(), bytes }
}

fn read(files: &[SourceFile]) -> Result<(), TestCaseError> {
    match parse(files) {
        Ok(Library { agents, .. }) => {
            for agent in agents {
                prop_assert!(check(&agent).is_ok(), "{agent:?} was let in");
            }
        }
        Err(faults) => {
            for fault in faults {
                prop_assert!(files.iter().any(|file| fault.to_string().contains(&file.path)), "{fault}");
            }
        }
    }
    Ok(())
}

#[test]
fn the_good_files_are_good() {
    let files: Vec<SourceFile> = GOOD.iter().map(|(path, text)| file(path, text.as_bytes().to_vec())).collect();
    let library = parse(&files).unwrap();
    assert_eq!((library.agents.len(), library.skills.len()), (2, 1));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_read_or_refused(which in 0..GOOD.len(), bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        read(&[file(GOOD[which].0, bytes)])?;
    }

    #[test]
    fn a_changed_file_is_read_or_refused(
        which in 0..GOOD.len(),
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>(), 0..4u8), 1..8),
    ) {
        let mut bytes = GOOD[which].1.as_bytes().to_vec();
        for (at, byte, kind) in changes {
            let at = at.index(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                2 => bytes.insert(at, b"\n: -[]{}*&!|>'\"#"[usize::from(byte) % 16]),
                _ => bytes.truncate(at.max(1)),
            }
        }
        read(&[file(GOOD[which].0, bytes)])?;
    }
}
