//! The learning-rate range test (Smith 2015): its settings, [`LrFinder`], and its result, [`LrCurve`].
//!
//! The steps are [`Trainer::find_lr`](crate::Trainer::find_lr)'s; the drawing is in `svg`.

mod svg;

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// The range of rates that a test goes through, and how.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LrFinder {
    /// The first rate; 1e-7.
    pub start: f64,
    /// The last rate; 10. In between they rise by the same factor from step to step.
    pub end: f64,
    /// How many steps there are; 100.
    pub steps: u64,
    /// How much of the averaged loss is kept at each step; 0.98.
    pub smoothing: f64,
    /// The test ends when the averaged loss is this many times its least value; 4.
    pub diverged_at: f64,
}

impl Default for LrFinder {
    /// fastai's settings.
    fn default() -> Self {
        Self {
            start: 1e-7,
            end: 10.0,
            steps: 100,
            smoothing: 0.98,
            diverged_at: 4.0,
        }
    }
}

impl LrFinder {
    /// The rate of a step.
    pub(crate) fn rate(&self, step: u64) -> f64 {
        let last = self.steps.saturating_sub(1).max(1);
        self.start * (self.end / self.start).powf(step as f64 / last as f64)
    }

    /// Checks the range.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] names the first setting that makes no sense.
    pub fn check(&self) -> Result<()> {
        let Self {
            start,
            end,
            steps,
            smoothing,
            diverged_at,
        } = *self;
        let fits = start > 0.0 && end.is_finite() && start < end;
        let found = format!("{start} to {end}");
        let what = "the range of learning rates";
        Error::require(fits, what, "from above 0 to a larger rate", &found)?;
        let what = "the number of steps of a range test";
        Error::require(steps >= 2, what, "at least 2", &steps)?;
        let fits = (0.0..1.0).contains(&smoothing);
        let what = "the smoothing of a range test";
        Error::require(fits, what, "at least 0 and below 1", &smoothing)?;
        let what = "the ratio at which a range test has diverged";
        Error::require(diverged_at > 1.0, what, "above 1", &diverged_at)
    }
}

/// One step of a range test.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LrPoint {
    /// The learning rate.
    pub lr: f64,
    /// The loss before the update with that rate.
    pub loss: f64,
    /// The moving average of the loss.
    pub smoothed: f64,
}

/// The loss over the learning rate.
///
/// ```
/// use tallow_train::{LrCurve, LrPoint};
///
/// // Falls from 1e-4 to 1e-1 and explodes.
/// let losses = [2.0, 2.0, 1.9, 1.5, 1.0, 0.7, 0.6, 2.0, 9.0];
/// let points = losses.iter().enumerate().map(|(i, &loss)| {
///     LrPoint { lr: 10f64.powf(-5.0 + i as f64 * 0.5), loss, smoothed: loss }
/// });
/// let curve = LrCurve::from_points(points);
/// assert!(curve.valley().is_some_and(|lr| (1e-5..1e-1).contains(&lr)));
/// assert!(curve.to_svg().starts_with("<svg"));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LrCurve {
    points: Vec<LrPoint>,
    #[serde(skip)]
    average: f64,
}

impl LrCurve {
    /// A curve of these points, whose rates rise.
    pub fn from_points(points: impl IntoIterator<Item = LrPoint>) -> Self {
        Self {
            points: points.into_iter().collect(),
            average: 0.0,
        }
    }

    /// All steps that were made.
    pub fn points(&self) -> &[LrPoint] {
        &self.points
    }

    pub(crate) fn push(&mut self, lr: f64, loss: f64, finder: &LrFinder) {
        let kept = finder.smoothing;
        self.average = kept * self.average + (1.0 - kept) * loss;
        let weights = 1.0 - kept.powf(self.points.len() as f64 + 1.0);
        self.points.push(LrPoint {
            lr,
            loss,
            smoothed: self.average / weights,
        });
    }

    pub(crate) fn diverges(&self, finder: &LrFinder) -> bool {
        let losses = self.points.iter().map(|point| point.smoothed);
        let least = losses.fold(f64::INFINITY, f64::min);
        let last = self.points.last().map(|point| point.smoothed);
        last.is_some_and(|last| last > finder.diverged_at * least)
    }

    /// The rate at which the averaged loss falls fastest over the logarithm of the rate; none for a loss that never falls.
    pub fn steepest(&self) -> Option<f64> {
        let slope = |pair: &[LrPoint]| {
            (pair[1].smoothed - pair[0].smoothed) / (pair[1].lr.ln() - pair[0].lr.ln())
        };
        let slopes = self
            .trusted()
            .windows(2)
            .map(|pair| (slope(pair), pair[0].lr));
        let best = slopes.min_by(|a, b| a.0.total_cmp(&b.0));
        best.filter(|(slope, _)| *slope < 0.0).map(|(_, lr)| lr)
    }

    /// fastai's `valley`: the rate in the middle of the longest fall, which is the safer choice; none for a loss that never falls.
    pub fn valley(&self) -> Option<f64> {
        let points = self.trusted();
        let mut falls = vec![1usize; points.len()];
        let mut end = 0;
        for i in 1..points.len() {
            for j in 0..i {
                if points[i].smoothed < points[j].smoothed {
                    falls[i] = falls[i].max(falls[j] + 1);
                }
            }
            if falls[i] > falls[end] {
                end = i;
            }
        }
        let length = *falls.get(end)?;
        if length < 2 {
            return None;
        }
        let start = end.saturating_sub(length);
        let third = (end - start) as f64 / 3.0;
        let index = start + third as usize + (third / 2.0) as usize;
        points.get(index).map(|point| point.lr)
    }

    /// The curve without its first tenth, where the average is unsteady, and its last 5 points, where it may have exploded.
    fn trusted(&self) -> &[LrPoint] {
        let count = self.points.len();
        match count {
            0..15 => &self.points,
            _ => &self.points[count / 10..count - 5],
        }
    }

    /// The curve as an SVG picture, with both suggestions marked.
    pub fn to_svg(&self) -> String {
        svg::draw(self)
    }
}
