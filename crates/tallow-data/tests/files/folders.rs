//! Data sets from folders: what is read, under which names, and what is said of a folder or file that won't do.

use std::path::Path;

use crate::written::{cifar, cifar10_files, gzip, idx, mnist_files, pixels, write};
use tallow_data::{Error, FileProblem, ImageDataset, Result, datasets};

type Pair = (ImageDataset, ImageDataset);
type Load = fn(&Path) -> Result<Pair>;

fn check_mnist((train, test): &Pair) {
    assert_eq!((train.len(), test.len()), (4, 3));
    assert_eq!(train.image_shape(), [1, 28, 28]);
    assert_eq!(train.labels(), [3, 0, 9, 3]);
    assert_eq!(test.labels(), [1, 2, 1]);
    assert_eq!(train.pixels(), pixels(4 * 784));
    assert_eq!(test.image(2).unwrap(), &pixels(3 * 784)[2 * 784..]);
}

#[test]
fn mnist_is_read_under_each_of_its_names() {
    let renames: [fn(&str) -> String; 2] = [str::to_owned, |name| name.replace("-idx", ".idx")];
    for rename in renames {
        for packed in [false, true] {
            for subfolder in ["", "MNIST/raw"] {
                let folder = tempfile::tempdir().unwrap();
                for (name, bytes) in mnist_files() {
                    let (name, bytes) = match packed {
                        true => (rename(name) + ".gz", gzip(&bytes)),
                        false => (rename(name), bytes),
                    };
                    write(&folder.path().join(subfolder), &name, &bytes);
                }
                check_mnist(&datasets::mnist::load(folder.path()).unwrap());
            }
        }
    }
}

#[test]
fn fashion_mnist_has_its_own_names_and_classes() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in mnist_files() {
        write(&folder.path().join("FashionMNIST/raw"), name, &bytes);
    }
    let data = datasets::fashion_mnist::load(folder.path()).unwrap();
    check_mnist(&data);
    assert_eq!(data.0.class_names()[9], "Ankle boot");
}

#[test]
fn a_packed_file_needs_no_ending() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in mnist_files() {
        write(folder.path(), name, &gzip(&bytes));
    }
    check_mnist(&datasets::mnist::load(folder.path()).unwrap());
}

#[test]
fn idx_files_may_hold_images_of_any_size() {
    let folder = tempfile::tempdir().unwrap();
    let images = write(folder.path(), "a", &idx(&[2, 3, 5], &pixels(30)));
    let labels = write(folder.path(), "b", &idx(&[2], &[1, 0]));
    let data = datasets::idx::load(images, labels, ["no", "yes"]).unwrap();
    assert_eq!(data.image_shape(), [1, 3, 5]);
    assert_eq!(data.pixels(), pixels(30));
}

#[test]
fn cifar10_is_five_files_and_one() {
    for subfolder in ["", "cifar-10-batches-bin"] {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in cifar10_files() {
            write(&folder.path().join(subfolder), &name, &bytes);
        }
        let (train, test) = datasets::cifar10::load(folder.path()).unwrap();
        assert_eq!(train.image_shape(), [3, 32, 32]);
        assert_eq!(train.labels(), [1, 9, 2, 9, 3, 9, 4, 9, 5, 9]);
        assert_eq!(test.labels(), [0, 7]);
        assert_eq!(train.image(5).unwrap(), &pixels(2 * 3072)[3072..]);
        assert_eq!(test.pixels(), pixels(2 * 3072));
        assert_eq!(test.class_names()[7], "horse");
    }
}

#[test]
fn cifar100_takes_the_fine_label() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "train.bin", &cifar(&[&[19, 99], &[0, 5]]));
    write(folder.path(), "test.bin.gz", &gzip(&cifar(&[&[4, 0]])));
    let (train, test) = datasets::cifar100::load(folder.path()).unwrap();
    assert_eq!((train.labels(), test.labels()), (&[99, 5][..], &[0][..]));
    assert_eq!(train.pixels(), pixels(2 * 3072));
    assert_eq!(
        (train.class_names().len(), train.class_names()[99].as_str()),
        (100, "worm")
    );
}

#[test]
fn a_missing_folder_is_named_with_the_files_that_belong_there() {
    let here = tempfile::tempdir().unwrap();
    let missing = here.path().join("nowhere");
    let a_file = write(here.path(), "file", b"");
    let loads: [(Load, &str); 4] = [
        (|p| datasets::mnist::load(p), "t10k-labels-idx1-ubyte"),
        (
            |p| datasets::fashion_mnist::load(p),
            "train-images-idx3-ubyte",
        ),
        (|p| datasets::cifar10::load(p), "data_batch_3.bin"),
        (|p| datasets::cifar100::load(p), "train.bin"),
    ];
    for (load, file) in loads {
        for folder in [&missing, &a_file] {
            let error = load(folder).unwrap_err();
            assert!(
                matches!(&error, Error::MissingFolder { path, .. } if path == folder),
                "{error:?}"
            );
            let message = error.to_string();
            assert!(message.contains(&*folder.to_string_lossy()), "{message}");
            assert!(
                message.contains(file) && message.contains("https://"),
                "{message}"
            );
        }
        let message = load(here.path()).unwrap_err().to_string();
        assert!(
            message.contains("holds no ") && message.contains(file),
            "{message}"
        );
    }
}

#[test]
fn a_missing_file_is_named_under_each_name_that_was_tried() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in &mnist_files()[..3] {
        write(folder.path(), name, bytes);
    }
    let error = datasets::mnist::load(folder.path()).unwrap_err();
    let Error::MissingFile { file, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(
        file,
        "t10k-labels-idx1-ubyte or t10k-labels-idx1-ubyte.gz or t10k-labels.idx1-ubyte or t10k-labels.idx1-ubyte.gz"
    );
}

/// Replaces one of MNIST's files and returns what is said of it.
fn mnist_problem(name: &str, bytes: &[u8]) -> (FileProblem, String) {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in mnist_files() {
        write(folder.path(), name, &bytes);
    }
    let path = write(folder.path(), name, bytes);
    match datasets::mnist::load(folder.path()).unwrap_err() {
        Error::File {
            path: named,
            problem,
        } => {
            assert_eq!(named, path);
            let message = problem.to_string();
            (problem, message)
        }
        other => panic!("{other:?}"),
    }
}

macro_rules! check_problem {
    ($name:expr, $bytes:expr, $problem:pat, $message:expr) => {{
        let (problem, message) = mnist_problem($name, $bytes);
        assert!(matches!(problem, $problem), "{problem:?}");
        assert!(message.contains($message), "{message}");
    }};
}

#[test]
fn a_file_that_ends_early_or_late_is_told_by_its_bytes() {
    use FileProblem::{Gzip, TrailingData, Truncated};
    let images = "train-images-idx3-ubyte";
    let good = idx(&[4, 28, 28], &pixels(4 * 784));
    let short = &good[..good.len() - 1];
    let long = [&good[..], &[0]].concat();

    check_problem!(
        images,
        &[],
        Truncated {
            expected: 4,
            found: 0
        },
        "truncated: 4 bytes expected, 0 found"
    );
    check_problem!(
        images,
        &good[..9],
        Truncated {
            expected: 12,
            found: 9
        },
        "truncated"
    );
    check_problem!(
        images,
        short,
        Truncated {
            expected: 3152,
            found: 3151
        },
        "fetch the file again"
    );
    check_problem!(
        images,
        &long,
        TrailingData {
            expected: 3152,
            found: 3153
        },
        "more data than expected"
    );

    check_problem!(
        images,
        &gzip(short),
        Truncated {
            expected: 3152,
            found: 3151
        },
        "truncated"
    );
    check_problem!(
        images,
        &gzip(&long),
        TrailingData {
            expected: 3152,
            found: 3153
        },
        "more data"
    );
    let packed = gzip(&good);
    check_problem!(
        images,
        &packed[..packed.len() / 2],
        Truncated { expected: 3152, .. },
        "truncated"
    );
    check_problem!(
        images,
        &packed[..packed.len() - 3],
        Gzip { found: 3152, .. },
        "damaged gzip data"
    );
    let mut wrong_sum = packed;
    let sum = wrong_sum.len() - 8;
    wrong_sum[sum] ^= 1;
    check_problem!(images, &wrong_sum, Gzip { .. }, "damaged gzip data");
}

#[test]
fn a_file_of_another_kind_is_told_by_its_header() {
    use FileProblem::{ElementType, Empty, ImageSize, Magic, Rank};
    let (images, labels) = ("train-images-idx3-ubyte", "t10k-labels-idx1-ubyte");

    check_problem!(
        images,
        b"<!DOCTYPE html>",
        Magic { .. },
        "begins with bytes [3c, 21, 44, 4f]"
    );
    check_problem!(
        labels,
        &idx(&[3, 28, 28], &pixels(3 * 784)),
        Rank {
            expected: 1,
            found: 3,
            ..
        },
        "mixed up"
    );
    check_problem!(
        images,
        &idx(&[4], &[1, 2, 3, 4]),
        Rank {
            expected: 3,
            found: 1,
            ..
        },
        "count, height, width"
    );
    let mut floats = idx(&[3], &[0; 12]);
    floats[2] = 0x0d;
    check_problem!(
        labels,
        &floats,
        ElementType { found: 0x0d, .. },
        "type 0x0d (32-bit float)"
    );
    let larger = idx(&[4, 32, 30], &pixels(4 * 32 * 30));
    check_problem!(
        images,
        &larger,
        ImageSize { .. },
        "images of 32x30 pixels, expected 28x28"
    );
    check_problem!(images, &idx(&[0, 28, 28], &[]), Empty, "holds no images");
}

#[test]
fn labels_that_do_not_fit_the_images_or_the_classes_are_told() {
    use FileProblem::{Count, Label};
    let labels = "train-labels-idx1-ubyte";
    check_problem!(
        labels,
        &idx(&[3], &[1, 2, 3]),
        Count {
            images: 4,
            labels: 3,
            ..
        },
        "train-images-idx3-ubyte"
    );
    check_problem!(
        labels,
        &idx(&[4], &[1, 2, 10, 3]),
        Label {
            index: 2,
            label: 10,
            classes: 10
        },
        "0 to 9"
    );
}

#[test]
fn a_damaged_cifar_file_is_named() {
    use FileProblem::{Empty, Label, RecordSize};
    type Check = fn(&FileProblem) -> bool;
    let bad: [(&str, Vec<u8>, Check); 4] = [
        ("data_batch_4.bin", cifar(&[&[1]])[..3072].to_vec(), |p| {
            matches!(
                p,
                RecordSize {
                    record: 3073,
                    found: 3072,
                    ..
                }
            )
        }),
        ("test_batch.bin", vec![], |p| matches!(p, Empty)),
        ("data_batch_1.bin", cifar(&[&[1], &[2], &[200]]), |p| {
            matches!(
                p,
                Label {
                    index: 2,
                    label: 200,
                    classes: 10
                }
            )
        }),
        // A file of 64x64 images.
        ("data_batch_2.bin", vec![0; 1 + 3 * 64 * 64], |p| {
            matches!(p, RecordSize { found: 12289, .. })
        }),
    ];
    for (name, bytes, check) in bad {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in cifar10_files() {
            write(folder.path(), &name, &bytes);
        }
        let path = write(folder.path(), name, &bytes);
        let error = datasets::cifar10::load(folder.path()).unwrap_err();
        assert!(
            error.to_string().starts_with(&*path.to_string_lossy()),
            "{error}"
        );
        assert!(
            matches!(&error, Error::File { problem, .. } if check(problem)),
            "{error:?}"
        );
    }
}

#[test]
fn a_coarse_label_out_of_range_is_told() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "train.bin", &cifar(&[&[20, 0]]));
    write(folder.path(), "test.bin", &cifar(&[&[0, 0]]));
    let error = datasets::cifar100::load(folder.path()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("label 20 of sample 0 is out of range: the data set has 20 classes"),
        "{error}"
    );
}

#[test]
fn a_folder_in_a_files_place_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in &mnist_files()[1..] {
        write(folder.path(), name, bytes);
    }
    std::fs::create_dir(folder.path().join("train-images-idx3-ubyte")).unwrap();
    let error = datasets::mnist::load(folder.path()).unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error:?}");
    assert!(
        error.to_string().contains("train-images-idx3-ubyte"),
        "{error}"
    );
}
