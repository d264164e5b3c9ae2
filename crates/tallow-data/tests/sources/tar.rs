//! Tar files in WebDataset's form.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tallow_data::{Error, FileProblem, LoaderConfig, Shard, TarShards};
use tempfile::tempdir;

use super::{epoch, png, samples};

fn add(tar: &mut tar::Builder<Vec<u8>>, name: &str, bytes: &[u8]) {
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes.len() as u64);
    header.set_mode(0o644);
    tar.append_data(&mut header, name, bytes).unwrap();
}

/// A tar file of samples of these greys, each of class grey % 10.
fn tar_of(greys: impl IntoIterator<Item = u8>) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for grey in greys {
        add(
            &mut tar,
            &format!("some/folder.d/{grey:04}.png"),
            &png(grey),
        );
        add(
            &mut tar,
            &format!("some/folder.d/{grey:04}.cls"),
            format!("{}", grey % 10).as_bytes(),
        );
        add(&mut tar, &format!("some/folder.d/{grey:04}.json"), b"{}");
    }
    tar.into_inner().unwrap()
}

/// Five files of ten samples.
fn shards(folder: &Path) -> Vec<PathBuf> {
    let write = |shard: u8| {
        let path = folder.join(format!("{shard}.tar"));
        fs::write(&path, tar_of(shard * 10..shard * 10 + 10)).unwrap();
        path
    };
    (0..5).map(write).collect()
}

fn all() -> Vec<(u8, u32)> {
    (0..50u8).map(|grey| (grey, u32::from(grey % 10))).collect()
}

#[test]
fn samples_come_in_the_order_of_the_files() {
    let folder = tempdir().unwrap();
    let source = TarShards::open(shards(folder.path())).unwrap();
    assert_eq!(
        samples(source, 0, LoaderConfig::eval(7).with_workers(2)),
        all()
    );
}

#[test]
fn training_mixes_shards_and_samples_anew_in_each_epoch() {
    let folder = tempdir().unwrap();
    let source = TarShards::open(shards(folder.path())).unwrap();
    let config = |workers| LoaderConfig {
        drop_last: false,
        ..LoaderConfig::train(4).with_workers(workers)
    };
    let orders: Vec<_> = (0..2)
        .map(|epoch| samples(source.clone().shuffle_buffer(8), epoch, config(0)))
        .collect();
    assert_ne!(orders[0], orders[1]);
    for (epoch, order) in orders.iter().enumerate() {
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, all());
        assert_ne!(*order, all());
        for workers in [1, 2, 5] {
            let source = source.clone().shuffle_buffer(8);
            assert_eq!(samples(source, epoch as u64, config(workers)), *order);
        }
    }
}

#[test]
fn readers_share_the_samples_of_the_same_order() {
    let folder = tempdir().unwrap();
    let source = TarShards::open(shards(folder.path())).unwrap();
    for of in [2, 3, 7] {
        let mut together = Vec::new();
        for rank in 0..of {
            let config = |even| LoaderConfig {
                shard: Shard { rank, of },
                drop_last: even,
                ..LoaderConfig::train(1)
            };
            together.extend(samples(source.clone(), 1, config(false)));
            assert_eq!(samples(source.clone(), 1, config(true)).len(), 50 / of);
        }
        together.sort_unstable();
        assert_eq!(together, all());
    }
}

#[test]
fn long_names_are_read_and_other_entries_are_passed_over() {
    let mut tar = tar::Builder::new(Vec::new());
    let long = "deep/".repeat(60) + "x";
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Directory);
    header.set_size(0);
    tar.append_data(&mut header, "deep/", &[][..]).unwrap();
    add(&mut tar, "README", b"about");
    add(&mut tar, ".hidden.png", b"");
    add(&mut tar, &format!("{long}.cls"), b" 7\n");
    add(&mut tar, &format!("{long}.PNG"), &png(3));
    let folder = tempdir().unwrap();
    let path = folder.path().join("a.tar");
    fs::write(&path, tar.into_inner().unwrap()).unwrap();
    let source = TarShards::open([path]).unwrap();
    assert_eq!(samples(source, 0, LoaderConfig::eval(1)), [(3, 7)]);
}

#[test]
fn a_sample_that_is_not_whole_is_an_error_that_names_it() {
    let mut tar = tar::Builder::new(Vec::new());
    add(&mut tar, "a.png", &png(1));
    add(&mut tar, "a.cls", b"1");
    add(&mut tar, "b.png", &png(2));
    add(&mut tar, "c.png", &png(3));
    add(&mut tar, "c.cls", b"-3");
    add(&mut tar, "d.png", b"no image");
    add(&mut tar, "d.cls", b"4");
    add(&mut tar, "e.cls", b"5");
    add(&mut tar, "e.png", &png(5));
    let folder = tempdir().unwrap();
    let path = folder.path().join("a.tar");
    fs::write(&path, tar.into_inner().unwrap()).unwrap();
    let read = epoch(TarShards::open([path]).unwrap(), 0, LoaderConfig::eval(1));
    assert_eq!(read.len(), 5);
    for (item, expected) in read.iter().zip(["", "b", "c in", "d in", ""]) {
        match item {
            Ok(samples) => assert!(expected.is_empty() && samples.len() == 1),
            Err(error) => {
                let message = error.to_string();
                assert!(
                    !expected.is_empty() && message.contains("a.tar"),
                    "{message}"
                );
                assert!(message.contains(expected), "{message}");
            }
        }
    }
}

#[test]
fn a_file_that_is_cut_off_gives_what_is_whole_and_an_error() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("a.tar");
    let whole = tar_of(0..4);
    for len in (0..whole.len()).step_by(100) {
        fs::write(&path, &whole[..len]).unwrap();
        let read = epoch(TarShards::open([&path]).unwrap(), 0, LoaderConfig::eval(1));
        for item in read {
            if let Err(error) = item {
                assert!(
                    matches!(
                        error,
                        Error::File {
                            problem: FileProblem::Container { .. },
                            ..
                        }
                    ),
                    "{error}"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn hostile_bytes_are_errors(changes in prop::collection::vec((0usize..6000, any::<u8>()), 1..20)) {
        let folder = tempdir().unwrap();
        let path = folder.path().join("a.tar");
        let mut bytes = tar_of(0..2);
        for (place, byte) in changes {
            let place = place % bytes.len();
            bytes[place] = byte;
        }
        fs::write(&path, bytes).unwrap();
        // Neither a panic of the reader nor one that the loader caught.
        let change = |_, _: &mut _| Ok(());
        let source = TarShards::open([&path]).unwrap();
        let loader = tallow_data::Loader::collated(source, change, |n| Ok(n.len()), LoaderConfig::eval(1)).unwrap();
        for item in loader.batches(0).unwrap() {
            let message = item.map_err(|error| error.to_string());
            prop_assert!(message.as_ref().err().is_none_or(|m| !m.contains("panicked")), "{message:?}");
        }
    }
}

#[test]
fn files_that_are_missing_or_none_at_all_are_errors() {
    assert!(matches!(
        TarShards::open([] as [&str; 0]),
        Err(Error::Setting { .. })
    ));
    let error = TarShards::open(["/no/such.tar"]).unwrap_err();
    assert!(error.to_string().contains("/no/such.tar"), "{error}");
}
