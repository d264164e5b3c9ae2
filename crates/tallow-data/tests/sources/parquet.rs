//! Parquet files as the Hugging Face hub stores images.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use proptest::prelude::*;
use tallow_data::source::Parquet;
use tallow_data::{Error, LoaderConfig, LoaderState, Shard};
use tempfile::tempdir;

use super::{epoch, png, samples};

const SCHEMA: &str = "message schema {
    optional group img { optional binary bytes; optional binary path (UTF8); }
    optional int64 label;
}";

/// Writes row groups of images of these greys, each of class grey % 10; row 255 has an image that is none.
fn write(path: &Path, groups: &[Vec<u8>]) {
    let schema = Arc::new(parse_message_type(SCHEMA).unwrap());
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer =
        SerializedFileWriter::new(File::create(path).unwrap(), schema, properties).unwrap();
    for greys in groups {
        let image = |&grey: &u8| match grey {
            255 => ByteArray::from("no image"),
            grey => ByteArray::from(png(grey)),
        };
        let images: Vec<_> = greys.iter().map(image).collect();
        let names: Vec<_> = greys
            .iter()
            .map(|g| ByteArray::from(format!("{g}.png").into_bytes()))
            .collect();
        let labels: Vec<_> = greys.iter().map(|g| i64::from(g % 10)).collect();
        let mut group = writer.next_row_group().unwrap();
        for values in [&images, &names] {
            let mut column = group.next_column().unwrap().unwrap();
            let levels = vec![2; greys.len()];
            column
                .typed::<ByteArrayType>()
                .write_batch(values, Some(&levels), None)
                .unwrap();
            column.close().unwrap();
        }
        let mut column = group.next_column().unwrap().unwrap();
        let levels = vec![1; greys.len()];
        column
            .typed::<Int64Type>()
            .write_batch(&labels, Some(&levels), None)
            .unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    writer.close().unwrap();
}

fn all(greys: impl IntoIterator<Item = u8>) -> Vec<(u8, u32)> {
    greys
        .into_iter()
        .map(|grey| (grey, u32::from(grey % 10)))
        .collect()
}

fn open(folder: &Path) -> Parquet {
    let paths = [folder.join("a.parquet"), folder.join("b.parquet")];
    write(&paths[0], &[(0..10).collect(), (10..15).collect()]);
    write(&paths[1], &[(15..30).collect()]);
    Parquet::open(paths, "img", "label").unwrap()
}

#[test]
fn rows_come_in_order_or_mixed_for_any_number_of_workers() {
    let folder = tempdir().unwrap();
    let source = open(folder.path());
    assert_eq!(source.rows(), 30);
    for workers in [0, 1, 2, 5] {
        let read = samples(
            source.clone(),
            0,
            LoaderConfig::eval(4).with_workers(workers),
        );
        assert_eq!(read, all(0..30));
    }
    let mixed = |workers| {
        let config = LoaderConfig {
            drop_last: false,
            ..LoaderConfig::train(4).with_workers(workers)
        };
        samples(source.clone().shuffle_buffer(6), 3, config)
    };
    let reference = mixed(0);
    let mut sorted = reference.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, all(0..30));
    assert_ne!(sorted, reference);
    for workers in [1, 2, 5] {
        assert_eq!(mixed(workers), reference);
    }
}

#[test]
fn readers_share_the_rows_and_an_epoch_can_be_gone_on_with() {
    let folder = tempdir().unwrap();
    let source = open(folder.path());
    let config = |rank| LoaderConfig {
        shard: Shard { rank, of: 2 },
        ..LoaderConfig::train(3)
    };
    let mut together = [0, 1]
        .map(|rank| samples(source.clone(), 0, config(rank)))
        .concat();
    together.sort_unstable();
    assert_eq!(together, all(0..30));

    let loader = |workers| {
        let config = config(1).with_workers(workers);
        tallow_data::Loader::collated(source.clone(), |(_, label), _| Ok(label), Ok, config)
            .unwrap()
    };
    let whole: Vec<_> = loader(1).batches(2).unwrap().map(Result::unwrap).collect();
    let first = loader(2);
    let mut batches = first.batches(2).unwrap();
    batches.next();
    let state: LoaderState = batches.state();
    let rest: Vec<_> = loader(0)
        .resume(&state)
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(rest, whole[1..]);
}

#[test]
fn a_row_without_an_image_is_an_error_that_names_it() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    write(&path, &[vec![1, 255, 3]]);
    let read = epoch(
        Parquet::open([&path], "img", "label").unwrap(),
        0,
        LoaderConfig::eval(1),
    );
    assert!(read[0].is_ok() && read[2].is_ok());
    let message = read[1].as_ref().unwrap_err().to_string();
    assert!(message.starts_with("row 1 (255.png) in "), "{message}");
}

#[test]
fn columns_that_are_not_there_are_named() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    write(&path, &[vec![1]]);
    let error = Parquet::open([&path], "image", "label").unwrap_err();
    assert!(
        error
            .to_string()
            .contains("no column \"image\" among img, label"),
        "{error}"
    );
    let read = epoch(
        Parquet::open([&path], "label", "img").unwrap(),
        0,
        LoaderConfig::eval(1),
    );
    assert!(read[0].is_err());
}

#[test]
fn files_that_are_cut_off_or_none_are_errors() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    write(&path, &[vec![1, 2, 3]]);
    let whole = fs::read(&path).unwrap();
    for len in (0..whole.len()).step_by(37) {
        fs::write(&path, &whole[..len]).unwrap();
        let error = Parquet::open([&path], "img", "label").unwrap_err();
        assert!(matches!(error, Error::File { .. }), "{error}");
    }
    fs::remove_file(&path).unwrap();
    assert!(matches!(
        Parquet::open([&path], "img", "label"),
        Err(Error::Io { .. })
    ));
    assert!(matches!(
        Parquet::open([] as [&str; 0], "a", "b"),
        Err(Error::Setting { .. })
    ));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn hostile_bytes_are_errors(changes in prop::collection::vec((any::<usize>(), any::<u8>()), 1..12)) {
        let folder = tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        write(&path, &[vec![1, 2, 3], vec![4]]);
        let mut bytes = fs::read(&path).unwrap();
        for (place, byte) in changes {
            let place = place % bytes.len();
            bytes[place] = byte;
        }
        fs::write(&path, bytes).unwrap();
        if let Ok(source) = Parquet::open([&path], "img", "label") {
            // Whatever comes, comes as items.
            let config = LoaderConfig::eval(1);
            if let Ok(loader) = tallow_data::Loader::collated(source, |_, _| Ok(()), |n| Ok(n.len()), config) {
                let _ = loader.batches(0).unwrap().take(1000).count();
            }
        }
    }
}
