//! A folder a class.

use std::fs;
use std::path::Path;

use tallow_data::{Dataset, Error, FileProblem, ImageFolder, LoaderConfig};
use tempfile::tempdir;

use super::{epoch, png, samples};

fn write(root: &Path, files: &[(&str, u8)]) {
    for (name, grey) in files {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, png(*grey)).unwrap();
    }
}

#[test]
fn classes_and_files_are_numbered_as_torchvision_numbers_them() {
    let folder = tempdir().unwrap();
    // The order is that of sorted(os.walk(..)): folders by their whole path, files by name, upper case first.
    let files = [
        ("Zebra/a.png", 1),
        ("cat/2.png", 2),
        ("cat/10.PNG", 3),
        ("cat/more/1.png", 4),
        ("cat/more-of/0.png", 5),
        ("dog/b.png", 6),
        ("dog/B.png", 7),
    ];
    write(folder.path(), &files);
    fs::write(folder.path().join("cat/notes.txt"), "no image").unwrap();
    fs::write(folder.path().join("loose.png"), png(9)).unwrap();

    let data = ImageFolder::open(folder.path()).unwrap();
    assert_eq!(data.classes(), ["Zebra", "cat", "dog"]);
    let names = data.files().iter().map(|(path, label)| {
        let path = path.strip_prefix(folder.path()).unwrap();
        (path.to_str().unwrap().replace('\\', "/"), *label)
    });
    let names: Vec<_> = names.collect();
    let names: Vec<_> = names
        .iter()
        .map(|(name, label)| (name.as_str(), *label))
        .collect();
    assert_eq!(
        names,
        [
            ("Zebra/a.png", 0),
            ("cat/10.PNG", 1),
            ("cat/2.png", 1),
            ("cat/more/1.png", 1),
            ("cat/more-of/0.png", 1),
            ("dog/B.png", 2),
            ("dog/b.png", 2),
        ]
    );
    let read = samples(data, 0, LoaderConfig::eval(3).with_workers(2));
    assert_eq!(
        read.iter().map(|s| s.0).collect::<Vec<_>>(),
        [1, 3, 2, 4, 5, 7, 6]
    );
}

#[test]
fn a_folder_that_is_not_laid_out_so_is_an_error() {
    let folder = tempdir().unwrap();
    let open = || ImageFolder::open(folder.path()).map(|_| ()).unwrap_err();
    let no_images = |error: &Error| {
        matches!(
            error,
            Error::File {
                problem: FileProblem::NoImages { .. },
                ..
            }
        )
    };
    assert!(no_images(&open()), "no classes");
    write(folder.path(), &[("cat/1.png", 1)]);
    fs::create_dir(folder.path().join("dog")).unwrap();
    let error = open();
    assert!(
        no_images(&error) && error.to_string().contains("dog"),
        "{error}"
    );

    let error = ImageFolder::open(folder.path().join("cat/1.png")).unwrap_err();
    assert!(matches!(error, Error::MissingFolder { .. }), "{error}");
}

#[cfg(unix)]
#[test]
fn a_link_back_to_the_folder_ends() {
    let folder = tempdir().unwrap();
    write(folder.path(), &[("cat/1.png", 1)]);
    std::os::unix::fs::symlink("..", folder.path().join("cat/back")).unwrap();
    std::os::unix::fs::symlink(".", folder.path().join("cat/again")).unwrap();
    assert_eq!(ImageFolder::open(folder.path()).unwrap().len(), 1);
}

#[test]
fn a_file_that_is_damaged_or_gone_is_an_error_that_names_it() {
    let folder = tempdir().unwrap();
    write(
        folder.path(),
        &[
            ("cat/1.png", 1),
            ("cat/2.png", 2),
            ("cat/3.png", 3),
            ("cat/4.png", 4),
        ],
    );
    let data = ImageFolder::open(folder.path()).unwrap();
    let whole = png(2);
    fs::write(folder.path().join("cat/2.png"), &whole[..whole.len() / 2]).unwrap();
    fs::remove_file(folder.path().join("cat/3.png")).unwrap();
    fs::write(folder.path().join("cat/4.png"), "").unwrap();

    let read = epoch(data, 0, LoaderConfig::eval(1).with_workers(2));
    assert_eq!(read[0].as_ref().unwrap(), &[(1, 0)]);
    for (index, item) in read.iter().enumerate().skip(1) {
        let message = item.as_ref().unwrap_err().to_string();
        let name = format!("{}.png", index + 1);
        assert!(
            message.starts_with(&format!("sample {index} (")),
            "{message}"
        );
        assert!(message.contains(&name), "{message}");
    }
}
