//! Makes the code of `proto/upriver/peer/v1` and keeps its descriptor set for reflection. No protoc is needed.

use std::error::Error;
use std::path::PathBuf;

use prost::Message as _;

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env("CARGO_MANIFEST_DIR")?).join("../../proto");
    let file = "upriver/peer/v1/peer.proto";
    println!("cargo:rerun-if-changed={}", root.join(file).display());
    let descriptors = protox::compile([file], [&root])?;
    let kept = PathBuf::from(env("OUT_DIR")?).join("peer.bin");
    std::fs::write(kept, descriptors.encode_to_vec())?;
    tonic_prost_build::configure().build_transport(false).compile_fds(descriptors)?;
    Ok(())
}

fn env(name: &str) -> Result<String, std::env::VarError> {
    std::env::var(name)
}
