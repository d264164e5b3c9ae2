//! A range test as a picture: rates on a logarithmic axis, averaged losses over them.

use std::fmt::Write;

use super::LrCurve;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
const MARGIN: f64 = 50.0;

/// From values to places in the picture.
struct Axes {
    lr: [f64; 2],
    loss: [f64; 2],
}

impl Axes {
    fn of(curve: &LrCurve) -> Option<Self> {
        let (first, last) = (curve.points.first()?, curve.points.last()?);
        let losses = || curve.points.iter().map(|point| point.smoothed);
        Some(Self {
            lr: [first.lr.log10(), last.lr.log10()],
            loss: [
                losses().fold(f64::INFINITY, f64::min),
                losses().fold(f64::NEG_INFINITY, f64::max),
            ],
        })
    }

    fn x(&self, lr: f64) -> f64 {
        MARGIN + share(lr.log10(), self.lr) * (WIDTH - 2.0 * MARGIN)
    }

    fn y(&self, loss: f64) -> f64 {
        HEIGHT - MARGIN - share(loss, self.loss) * (HEIGHT - 2.0 * MARGIN)
    }
}

fn share(value: f64, [low, high]: [f64; 2]) -> f64 {
    if high > low {
        (value - low) / (high - low)
    } else {
        0.5
    }
}

/// Writing to a string never fails.
pub(super) fn draw(curve: &LrCurve) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    if let Some(axes) = Axes::of(curve) {
        scales(&mut svg, &axes);
        let _ = write!(
            svg,
            "<polyline fill=\"none\" stroke=\"#1f77b4\" stroke-width=\"2\" points=\""
        );
        for point in &curve.points {
            let _ = write!(
                svg,
                "{:.1},{:.1} ",
                axes.x(point.lr),
                axes.y(point.smoothed)
            );
        }
        svg.push_str("\"/>\n");
        for (name, lr, colour) in [
            ("steepest", curve.steepest(), "#d62728"),
            ("valley", curve.valley(), "#2ca02c"),
        ] {
            mark(&mut svg, curve, &axes, (name, lr, colour));
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// A line and a label for every power of ten, and the ends of the losses.
fn scales(svg: &mut String, axes: &Axes) {
    let bottom = HEIGHT - MARGIN;
    for power in axes.lr[0].ceil() as i32..=axes.lr[1].floor() as i32 {
        let x = axes.x(10f64.powi(power));
        let _ = writeln!(
            svg,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{MARGIN}\" y2=\"{bottom}\" stroke=\"#ddd\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">1e{power}</text>",
            bottom + 18.0
        );
    }
    for loss in axes.loss {
        let y = axes.y(loss);
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"end\">{loss:.3}</text>",
            MARGIN - 6.0
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">learning rate</text>\
         <text x=\"{MARGIN}\" y=\"{:.1}\">loss, averaged</text>",
        WIDTH / 2.0,
        HEIGHT - 8.0,
        MARGIN - 16.0
    );
}

fn mark(
    svg: &mut String,
    curve: &LrCurve,
    axes: &Axes,
    (name, lr, colour): (&str, Option<f64>, &str),
) {
    let Some(point) = lr.and_then(|lr| curve.points.iter().find(|point| point.lr == lr)) else {
        return;
    };
    let (x, y) = (axes.x(point.lr), axes.y(point.smoothed));
    let _ = writeln!(
        svg,
        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\" fill=\"{colour}\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{name} {:.1e}</text>",
        x + 8.0,
        y - 6.0,
        point.lr
    );
}
