//! The history as a picture: loss and accuracy over the epochs, in SVG.

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::{EpochRecord, Error, Result};

const SIZE: (u32, u32) = (960, 400);
const TRAIN: RGBColor = RGBColor(31, 119, 180);
const EVALUATION: RGBColor = RGBColor(214, 90, 20);

/// One line of a panel.
struct Curve {
    name: &'static str,
    color: RGBColor,
    points: Vec<(f64, f64)>,
}

/// Two panels side by side: loss on the left, accuracy on the right.
pub(super) fn svg(epochs: &[EpochRecord]) -> Result<String> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        area.fill(&WHITE).map_err(failed)?;
        let (left, right) = area.split_horizontally(SIZE.0 / 2);
        panel(&left, "loss", &curves(epochs, "loss"))?;
        panel(&right, "accuracy", &curves(epochs, "accuracy"))?;
        area.present().map_err(failed)?;
    }
    Ok(text)
}

fn curves(epochs: &[EpochRecord], metric: &str) -> Vec<Curve> {
    let curve = |name: &'static str, color| {
        let full = format!("{name}/{metric}");
        let point = |record: &EpochRecord| {
            // Epochs are counted from 1 where people read them.
            let value = record.value(&full).ok()?;
            value
                .is_finite()
                .then_some((record.epoch as f64 + 1.0, value))
        };
        Curve {
            name,
            color,
            points: epochs.iter().filter_map(point).collect(),
        }
    };
    let mut curves = vec![curve("train", TRAIN), curve("evaluation", EVALUATION)];
    curves.retain(|curve| !curve.points.is_empty());
    curves
}

fn panel(area: &DrawingArea<SVGBackend<'_>, Shift>, title: &str, curves: &[Curve]) -> Result<()> {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let bounds = |values: Vec<f64>, margin: f64| {
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if low > high {
            return 0.0..1.0;
        }
        let room = if high > low {
            margin * (high - low)
        } else {
            0.5
        };
        low - room..high + room
    };
    let x = bounds(points().map(|point| point.0).collect(), 0.0);
    let y = bounds(points().map(|point| point.1).collect(), 0.05);
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .caption(title, ("sans-serif", 18))
        .x_label_area_size(34)
        .y_label_area_size(56)
        .build_cartesian_2d(x, y)
        .map_err(failed)?;
    let mesh = &mut chart.configure_mesh();
    mesh.light_line_style(TRANSPARENT)
        .x_desc("epoch")
        .draw()
        .map_err(failed)?;
    for curve in curves {
        let style = curve.color.stroke_width(2);
        let line = LineSeries::new(curve.points.iter().copied(), style).point_size(3);
        let color = curve.color;
        chart
            .draw_series(line)
            .map_err(failed)?
            .label(curve.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
    }
    let legend = &mut chart.configure_series_labels();
    legend
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()
        .map_err(failed)
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::hook(format!("the curves can't be drawn: {error}"))
}
