//! Writes the CRDs and their kustomization into the folder given as the only argument.

use std::path::PathBuf;
use std::process::ExitCode;

use upriver_api::crds;

fn main() -> ExitCode {
    let Some(dir) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: {}", crds::COMMAND);
        return ExitCode::from(2);
    };
    match write(&dir) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cannot write to {}: {error}", dir.display());
            ExitCode::FAILURE
        }
    }
}

fn write(dir: &std::path::Path) -> std::io::Result<()> {
    std::fs::create_dir_all(dir)?;
    for crd in crds::all() {
        std::fs::write(dir.join(crds::file_name(&crd)), crds::render(&crd))?;
    }
    std::fs::write(dir.join("kustomization.yaml"), crds::kustomization())
}
