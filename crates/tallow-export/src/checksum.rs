//! SHA-256 of files, as `sha256sum` writes it.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::manifest::{DeliveredFile, Role};
use crate::{Error, Result};

/// The checksum of bytes.
pub(crate) fn of_bytes(bytes: &[u8]) -> String {
    hex(Sha256::new().chain_update(bytes))
}

/// Size and checksum of a file of a folder.
pub(crate) fn of_file(folder: &Path, name: &str, role: Role) -> Result<DeliveredFile> {
    let path = folder.join(name);
    let read = || {
        let mut file = File::open(&path)?;
        let mut digest = Sha256::new();
        let mut block = vec![0; 1 << 20];
        let mut bytes = 0;
        loop {
            let count = file.read(&mut block)?;
            if count == 0 {
                return Ok((bytes, hex(digest)));
            }
            digest.update(&block[..count]);
            bytes += count as u64;
        }
    };
    let (bytes, sha256) = read().map_err(Error::io("read", &path))?;
    Ok(DeliveredFile {
        name: name.to_string(),
        role,
        bytes,
        sha256,
    })
}

fn hex(digest: Sha256) -> String {
    let bytes = digest.finalize();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
