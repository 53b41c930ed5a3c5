//! Compiles the messages without protoc.

/// What callers ask for is the JSON of the HTTP surface in another encoding.
const ASKED: &[&str] = &[
    "CreateRunRequest",
    "OpenRequest",
    "SandboxSpec",
    "SandboxLimits",
    "ListRequest",
    "InputRequest",
    "StreamRequest",
    "CancelRequest",
    "CloseRequest",
    "SendRequest",
    "PollRequest",
];
/// And so is what they are answered.
const ANSWERED: &[&str] = &[
    "TurnError",
    "Blocker",
    "Usage",
    "Envelope",
    "RunAnswer",
    "CancelAnswer",
    "CloseAnswer",
    "InputAnswer",
    "LastTurn",
    "Run",
    "RunList",
    "Resident",
    "ResidentList",
];
/// Stand elsewhere than in a body or a query.
const ELSEWHERE: &[&str] = &[
    "InputRequest.run_id",
    "StreamRequest.run_id",
    "StreamRequest.last_event_id",
    "CancelRequest.run_id",
    "CloseRequest.run_id",
    "SendRequest.run_id",
    "PollRequest.run_id",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = "../../proto";
    let files = ["../../proto/hearth/v1/node.proto", "../../proto/hearth/v1/hearth.proto"];
    println!("cargo:rerun-if-changed={root}");
    let descriptors = protox::compile(files, [root])?;
    let mut builder = tonic_prost_build::configure();
    for name in ASKED {
        builder = builder.type_attribute(format!("hearth.v1.{name}"), "#[derive(serde::Serialize)]");
    }
    for name in ANSWERED {
        let attributes = "#[derive(serde::Deserialize)] #[serde(default)]";
        builder = builder.type_attribute(format!("hearth.v1.{name}"), attributes);
    }
    for name in ELSEWHERE {
        builder = builder.field_attribute(format!("hearth.v1.{name}"), "#[serde(skip)]");
    }
    builder = builder.field_attribute("hearth.v1.Run.metadata", "#[serde(deserialize_with = \"crate::texts\")]");
    builder.compile_fds(descriptors)?;
    Ok(())
}
