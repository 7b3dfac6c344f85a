//! Makes src/v1.rs of the crate beside it from packs.proto, so that those who build the crate need no protoc.
//!
//! Arguments: the .proto file, and the folder for the code.
use std::{env, fs, path::Path, process::ExitCode};

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let [proto, out] = args.as_slice() else {
        eprintln!("usage: skerry-packs-generate PROTO FOLDER");
        return ExitCode::FAILURE;
    };
    match generate(Path::new(proto), Path::new(out)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("{proto}: {err}");
            ExitCode::FAILURE
        }
    }
}

fn generate(proto: &Path, out: &Path) -> std::io::Result<()> {
    let folder = proto.parent().unwrap_or(Path::new("."));
    tonic_prost_build::configure()
        .build_server(false)
        .build_transport(false)
        .out_dir(out)
        .compile_protos(&[proto], &[folder])?;
    fs::rename(out.join("skerry.packs.v1.rs"), out.join("v1.rs"))
}
