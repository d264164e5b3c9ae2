//! Small images of a batch, copied pixel by pixel: a pixel of all images, then the next pixel.
//!
//! On a map of four by four pixels a third of the products of a padded 3x3 kernel is with zeros. The tiles of a product
//! can skip them if all of a tile's pixels stand at the same place of their images. In a batch such pixels lie a whole
//! image apart, often a power of two, where they would push each other out of the caches; so they are copied.

use super::correlation::Correlations;
use super::rows::Source;
use crate::parallel;
use crate::workspace::Workspace;

/// Images that fill tiles well.
const ENOUGH_IMAGES: usize = 16;
/// Channels that are worth a copy: each is multiplied with as many columns.
const ENOUGH_COLUMNS: usize = 32;
/// The share of products with padding, as one in so many, from which skipping them pays.
const SHARE: usize = 10;
/// Floats between two rows, so that they aren't a power of two apart.
const GAP: usize = 16;

/// Calls `f` with what `correlations` read, `[images, height, width, channels]`, or a copy of it.
pub(super) fn with_rows(
    correlations: &Correlations,
    values: &[f32],
    size: [usize; 2],
    workspace: &Workspace,
    f: impl FnOnce(Source<'_>),
) {
    let channels = correlations.depth * correlations.groups;
    let source = Source::whole(values, size, channels);
    if !suits(correlations) {
        return f(source);
    }
    let images = correlations.images;
    let [pixels, width] = [size[0] * size[1], channels + GAP];
    let mut scratch = workspace.take(pixels * images * width);
    let grain = parallel::grain(images * channels);
    let rows = parallel::rows(&mut scratch[..], images * width);
    parallel::for_each(pixels, grain, rows, |first, to| {
        for (pixel, to) in (first..).zip(to.data.chunks_exact_mut(images * width)) {
            for (image, to) in to.chunks_exact_mut(width).enumerate() {
                let from = &values[(image * pixels + pixel) * channels..][..channels];
                to[..channels].copy_from_slice(from);
            }
        }
    });
    f(Source::interleaved(&scratch, size, images, width));
}

fn suits(correlations: &Correlations) -> bool {
    let (live, all) = correlations.products();
    correlations.images >= ENOUGH_IMAGES
        && correlations.columns >= ENOUGH_COLUMNS
        && (all - live).saturating_mul(SHARE) >= all
}
