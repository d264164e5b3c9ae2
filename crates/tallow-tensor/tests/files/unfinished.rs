//! What is left of writers that were killed, and who may remove it.
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::process::parent_id;

use tallow_tensor::params::{remove_unfinished, write_atomically};

use crate::Outcome;

/// More than Linux numbers processes.
const DEAD: u32 = 4_194_305;

#[test]
fn only_files_that_a_dead_process_had_begun_are_removed() -> Outcome {
    let folder = tempfile::tempdir()?;
    let (alive, own) = (parent_id(), std::process::id());
    let gone = [
        format!(".step-1.safetensors.{DEAD}-0.tmp"),
        format!(".latest.{DEAD}-17.tmp"),
        // Of a former process that had this one's number.
        format!(".latest.{own}-18446744073709551615.tmp"),
    ];
    let left = [
        format!(".step-1.safetensors.{alive}-0.tmp"),
        format!(".notes.txt.{DEAD}-0.tmp"),
        format!("latest.{DEAD}-0.tmp"),
        format!(".latest.{DEAD}-.tmp"),
        format!(".latest.{DEAD}.tmp"),
        format!(".latest.+{DEAD}-0.tmp"),
        format!(".latest.{DEAD}-0.tmp.old"),
        format!("..{DEAD}-0.tmp"),
        "latest".to_string(),
        "step-1.safetensors".to_string(),
    ];
    for name in gone.iter().chain(&left) {
        fs::write(folder.path().join(name), name)?;
    }
    let inner = format!(".latest.{DEAD}-1.tmp");
    fs::create_dir(folder.path().join(&inner))?;

    let is_ours = |name: &str| name == "latest" || name.ends_with(".safetensors");
    assert_eq!(remove_unfinished(&folder, is_ours)?, gone.len());
    for name in &gone {
        assert!(!folder.path().join(name).exists(), "{name}");
    }
    for name in &left {
        assert_eq!(&fs::read_to_string(folder.path().join(name))?, name);
    }
    assert!(folder.path().join(&inner).is_dir());
    assert_eq!(remove_unfinished(&folder, is_ours)?, 0);
    Ok(())
}

#[test]
fn a_file_that_is_being_written_is_left_to_its_writer() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("latest");
    write_atomically(&path, |file| {
        let removed = remove_unfinished(&folder, |_| true).map_err(std::io::Error::other)?;
        assert_eq!(removed, 0);
        file.write_all(b"whole")
    })?;
    assert_eq!(fs::read(&path)?, b"whole");
    assert_eq!(fs::read_dir(&folder)?.count(), 1);
    Ok(())
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let missing = std::path::Path::new("no/such/folder");
    let error = remove_unfinished(missing, |_| true).unwrap_err();
    assert!(error.to_string().contains("no/such/folder"), "{error}");
}
