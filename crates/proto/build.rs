//! Compiles the messages without protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = "../../proto";
    let files = ["../../proto/hearth/v1/node.proto"];
    println!("cargo:rerun-if-changed={root}");
    let descriptors = protox::compile(files, [root])?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
