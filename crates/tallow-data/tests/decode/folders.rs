//! Folders of test pictures, where they are there, against what Pillow made of them (`golden/make_decoded.py`).
//!
//! Debian's package `libjxl-testdata` is found by itself; `TALLOW_TEST_IMAGES` names the folder `Tests/images` of Pillow's
//! source package.

use std::path::{Path, PathBuf};

use tallow_data::decode::{self, DecodeOptions};
use tallow_data::{Image, Result};

const TABLE: &str = include_str!("../golden/decoded.txt");

/// Files of which Pillow and we make something else, each for a reason.
const EXCEPTIONS: &[(&str, &str)] = &[
    (
        "app13.jpg",
        "libjpeg doesn't smooth the colours of 4x4 pixels",
    ),
    (
        "dispose_bgnd_transparency.gif",
        "pixels outside the first frame",
    ),
    (
        "first_frame_transparency.gif",
        "pixels outside the first frame",
    ),
    ("mmap_error.bmp", "the file ends early"),
    ("pal4rletrns.bmp", "pixels that are skipped have no colour"),
    ("pal8rletrns.bmp", "pixels that are skipped have no colour"),
    ("rgb16-565.bmp", "5 bits as 8, off by 1"),
    ("rgb16-565pal.bmp", "5 bits as 8, off by 1"),
    ("rgb16.bmp", "5 bits as 8, off by 1"),
];

/// Files that Pillow reads and we refuse, mostly since they are damaged.
const REFUSED: &[&str] = &[
    "flower.png.im_q85_luma_subsample.jpg",
    "flower_small.q85_420_non_interleaved.jpg",
    "flower_small.q85_420_partially_interleaved.jpg",
    "hopper_bad_exif.jpg",
    "truncated_app14.jpg",
    "no_palette.gif",
    "badplanes.bmp",
    "badrle.bmp",
    "pal8os2v2.bmp",
    "rletopdown.bmp",
];

fn folder(name: &str) -> Option<PathBuf> {
    let folder = match name {
        "libjxl" => PathBuf::from("/usr/share/libjxl-testdata"),
        _ => PathBuf::from(std::env::var_os("TALLOW_TEST_IMAGES")?),
    };
    folder.is_dir().then_some(folder)
}

fn is_jpeg(path: &Path) -> bool {
    std::fs::read(path).is_ok_and(|bytes| bytes.starts_with(&[0xff, 0xd8]))
}

/// What is wrong with what we read, if anything.
fn compare(image: &Image, expected: &str, jpeg: bool) -> Result<(), String> {
    let mut parts = expected.split(' ');
    let mut part = || parts.next().unwrap_or_default();
    let (size, crc, samples) = (part(), part(), part());
    let found = format!("{}x{}", image.height(), image.width());
    if found != size {
        return Err(format!("size {found} for {size}"));
    }
    let values = image.values();
    let mut off = Vec::new();
    for sample in 0..samples.len() / 2 {
        let expected = u8::from_str_radix(&samples[2 * sample..2 * sample + 2], 16).unwrap();
        off.push(values[sample * values.len() / 24].abs_diff(expected));
    }
    let mut sum = flate2::Crc::new();
    sum.update(values);
    let same = format!("{:08x}", sum.sum()) == crc;
    // Decoders of JPEG round differently: 2 of 255 nearly everywhere, 4 at the most; Pillow's own is libjpeg-turbo.
    let near = off.iter().all(|&off| off <= 4) && off.iter().filter(|&&off| off > 2).count() <= 1;
    if !(if jpeg { near } else { same }) {
        return Err(format!("off by {off:?}"));
    }
    Ok(())
}

fn check(name: &str) {
    let Some(folder) = folder(name) else {
        eprintln!("skipped: the test pictures `{name}` are not there; see the head of this file");
        return;
    };
    let mut wrong = Vec::new();
    let mut counts = [0; 3];
    for line in TABLE.lines() {
        let columns: Vec<&str> = line.split('\t').collect();
        let [path, size, expected] = columns[..] else {
            panic!("a line of three columns: {line}");
        };
        let Some(file) = path.strip_prefix(&format!("{name}/")) else {
            continue;
        };
        let file = folder.join(file);
        if std::fs::metadata(&file).is_ok_and(|data| data.len().to_string() != size) {
            continue;
        }
        let ours = decode::open(&file, &DecodeOptions::rgb());
        match ours {
            Ok(image) if expected != "refused" => {
                counts[0] += 1;
                if let Err(message) = compare(&image, expected, is_jpeg(&file))
                    && !EXCEPTIONS.iter().any(|(name, _)| path.ends_with(name))
                {
                    wrong.push(format!("{path}: {message}"));
                }
            }
            // Pillow refuses it, and we read something: no harm.
            Ok(_) => counts[1] += 1,
            Err(error) => {
                counts[2] += 1;
                let message = error.to_string();
                assert!(message.contains(&*file.to_string_lossy()), "{message}");
                if expected != "refused" && !REFUSED.iter().any(|name| path.ends_with(name)) {
                    wrong.push(message);
                }
            }
        }
    }
    eprintln!(
        "{name}: {} as Pillow, {} that Pillow refuses, {} errors",
        counts[0], counts[1], counts[2]
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(counts[0] > counts[2], "most of the pictures can be read");
}

#[test]
fn pictures_of_libjxl_are_read_as_pillow_reads_them() {
    check("libjxl");
}

#[test]
fn pictures_of_pillow_are_read_as_pillow_reads_them() {
    check("pillow");
}
