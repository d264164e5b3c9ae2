//! The charts of the HTML report, as SVG: parts of a step as a pie and step by step, operations as bars, memory as lines.

use std::collections::HashMap;
use std::f64::consts::TAU;
use std::fmt::Write as _;

use super::escape;
use crate::table::milliseconds;
use crate::tree::Tree;
use crate::{Part, PartTime, Profile, Row};

/// Colours that colour-blind readers can tell apart (Okabe and Ito), one a part.
fn color(part: Part) -> &'static str {
    match part {
        Part::Data => "#D55E00",
        Part::Forward => "#0072B2",
        Part::Backward => "#56B4E9",
        Part::Optimizer => "#009E73",
        Part::Evaluation => "#CC79A7",
        Part::Compile => "#E69F00",
        Part::Hooks => "#F0E442",
        Part::Collective => "#000000",
        Part::Other => "#999999",
    }
}

fn legend(parts: impl IntoIterator<Item = (Part, String)>) -> String {
    let mut text = String::from("<p class=\"legend\">");
    for (part, note) in parts {
        let _ = write!(
            text,
            "<span><i style=\"background:{}\"></i>{}{note}</span>",
            color(part),
            part.name()
        );
    }
    text.push_str("</p>");
    text
}

/// Shares of the wall time.
pub(super) fn pie(parts: &[PartTime]) -> String {
    let mut svg = String::from("<svg width=\"240\" height=\"240\" viewBox=\"-120 -120 240 240\">");
    let mut angle = -TAU / 4.0;
    for time in parts {
        let next = angle + time.share * TAU;
        let title = format!("{}: {:.1} %", time.part.name(), 100.0 * time.share);
        if time.share > 0.999 {
            let _ = write!(svg, "<circle r=\"110\" fill=\"{}\">", color(time.part));
            let _ = write!(svg, "<title>{title}</title></circle>");
        } else {
            let large = u8::from(time.share > 0.5);
            let point = |angle: f64| (110.0 * angle.cos(), 110.0 * angle.sin());
            let ((x0, y0), (x1, y1)) = (point(angle), point(next));
            let _ = write!(
                svg,
                "<path d=\"M0 0L{x0:.2} {y0:.2}A110 110 0 {large} 1 {x1:.2} {y1:.2}Z\" fill=\"{}\" stroke=\"#fff\">\
                 <title>{title}</title></path>",
                color(time.part)
            );
        }
        angle = next;
    }
    svg.push_str("</svg>");
    let notes = parts
        .iter()
        .map(|time| (time.part, format!(" {:.1} %", 100.0 * time.share)));
    svg + &legend(notes)
}

/// Bars that are drawn; more steps are taken together.
const BARS: usize = 120;
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 60.0;

/// What each step is made of; without steps, each stretch of the time.
pub(super) fn timeline(profile: &Profile, tree: &Tree) -> String {
    let (sums, unit) = match profile.steps.len() {
        0 => (stretches(profile, tree), "stretch"),
        _ => (profile.step_parts(tree), "step"),
    };
    let first = profile.steps.first().map_or(0, |step| step.number);
    let together = sums.len().div_ceil(BARS).max(1);
    let bars: Vec<HashMap<Part, f64>> = sums.chunks(together).map(mean).collect();
    let most = bars
        .iter()
        .map(|bar| bar.values().sum::<f64>())
        .fold(1.0, f64::max);
    let width = (WIDTH - LEFT) / bars.len().max(1) as f64;
    let mut svg = frame(most, |time| milliseconds(time as u64));
    for (index, bar) in bars.iter().enumerate() {
        let mut y = HEIGHT;
        for part in Part::ALL {
            let Some(time) = bar.get(&part) else { continue };
            let height = time / most * (HEIGHT - 10.0);
            y -= height;
            let _ = write!(
                svg,
                "<rect x=\"{:.2}\" y=\"{y:.2}\" width=\"{:.2}\" height=\"{height:.2}\" fill=\"{}\">\
                 <title>{unit} {}: {} {}</title></rect>",
                LEFT + index as f64 * width,
                (width * 0.92).max(0.5),
                color(part),
                first + (index * together) as u64,
                part.name(),
                milliseconds(*time as u64)
            );
        }
    }
    svg.push_str("</svg>");
    let parts = Part::ALL
        .into_iter()
        .filter(|part| bars.iter().any(|bar| bar.contains_key(part)));
    svg + &legend(parts.map(|part| (part, String::new())))
}

fn mean(steps: &[HashMap<Part, u64>]) -> HashMap<Part, f64> {
    let mut means = HashMap::new();
    for (part, time) in steps.iter().flatten() {
        *means.entry(*part).or_default() += *time as f64 / steps.len() as f64;
    }
    means
}

fn stretches(profile: &Profile, tree: &Tree) -> Vec<HashMap<Part, u64>> {
    let Some((start, end)) = range(profile) else {
        return Vec::new();
    };
    let length = ((end - start) / 60).max(1);
    let each = (0..60).map(|index| {
        let from = start + index * length;
        profile.part_sums(tree, from, from + length)
    });
    each.collect()
}

/// From the first window's beginning to the last one's end.
fn range(profile: &Profile) -> Option<(u64, u64)> {
    let start = profile.windows.first()?.start;
    let end = profile.windows.last()?.end;
    (end > start).then_some((start, end))
}

/// The beginning of a chart, with lines at quarters of the most.
fn frame(most: f64, label: impl Fn(f64) -> String) -> String {
    let mut svg = format!(
        "<svg width=\"{WIDTH}\" height=\"{}\" viewBox=\"0 0 {WIDTH} {}\">",
        HEIGHT + 20.0,
        HEIGHT + 20.0
    );
    for quarter in 0..=4 {
        let share = f64::from(quarter) / 4.0;
        let y = HEIGHT - share * (HEIGHT - 10.0);
        let _ = write!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 4.0,
            y + 4.0,
            label(share * most)
        );
    }
    svg
}

/// The operations that take the most time of their own.
pub(super) fn bars(rows: &[Row], wall: u64) -> String {
    const LINE: f64 = 20.0;
    let most = rows.first().map_or(1, |row| row.self_time.max(1)) as f64;
    let height = LINE * rows.len().max(1) as f64;
    let mut svg = format!("<svg width=\"900\" height=\"{height}\" viewBox=\"0 0 900 {height}\">");
    for (index, row) in rows.iter().enumerate() {
        let y = LINE * index as f64;
        let width = 400.0 * row.self_time as f64 / most;
        let rate = match row.flops {
            0 => String::new(),
            _ => format!(", {:.1} GFLOP/s", row.gflops()),
        };
        let _ = write!(
            svg,
            "<text x=\"215\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <rect x=\"220\" y=\"{:.1}\" width=\"{width:.1}\" height=\"14\" fill=\"#0072B2\"/>\
             <text x=\"{:.1}\" y=\"{0:.1}\">{} ({:.1} %), {} calls{rate}</text>",
            y + 14.0,
            escape(&row.label),
            y + 3.0,
            226.0 + width,
            milliseconds(row.self_time),
            100.0 * row.self_time as f64 / wall.max(1) as f64,
            row.calls
        );
    }
    svg.push_str("</svg>");
    svg
}

/// Points that a line is drawn with, at most.
const POINTS: usize = 1500;

/// Memory over time.
pub(super) fn memory(profile: &Profile) -> String {
    let memory = &profile.memory;
    let lines = [
        ("process", "#999999", &memory.process, false),
        ("tape (eager training)", "#0072B2", &memory.tape, true),
        ("compiled plans", "#D55E00", &memory.arena, true),
    ];
    let Some((start, end)) = range(profile) else {
        return String::new();
    };
    let all = lines.iter().flat_map(|(_, _, line, _)| line.iter());
    let most = all.map(|&(_, bytes)| bytes).max().unwrap_or(0).max(1) as f64;
    let mut svg = frame(most, |bytes| {
        format!("{:.0} MiB", bytes / f64::from(1 << 20))
    });
    let x = |time: u64| {
        let share = time.clamp(start, end).saturating_sub(start) as f64 / (end - start) as f64;
        LEFT + share * (WIDTH - LEFT)
    };
    let y = |bytes: u64| HEIGHT - bytes as f64 / most * (HEIGHT - 10.0);
    let mut names = String::from("<p class=\"legend\">");
    for (name, color, line, steps) in lines {
        if line.is_empty() {
            continue;
        }
        let mut path = String::new();
        let stride = line.len().div_ceil(POINTS).max(1);
        for points in line.chunks(stride) {
            // The highest of those that fall together, so that no peak is lost.
            let Some(&(time, bytes)) = points.iter().max_by_key(|(_, bytes)| *bytes) else {
                continue;
            };
            let (x, y) = (x(time), y(bytes));
            let _ = match (path.is_empty(), steps) {
                (true, _) => write!(path, "M{x:.1} {y:.1}"),
                (false, true) => write!(path, "H{x:.1}V{y:.1}"),
                (false, false) => write!(path, "L{x:.1} {y:.1}"),
            };
        }
        if steps {
            let _ = write!(path, "H{WIDTH}");
        }
        let _ = write!(svg, "<path d=\"{path}\" fill=\"none\" stroke=\"{color}\"/>");
        let peak = line.iter().map(|&(_, bytes)| bytes).max().unwrap_or(0);
        let _ = write!(
            names,
            "<span><i style=\"background:{color}\"></i>{name}, at most {:.1} MiB</span>",
            peak as f64 / f64::from(1 << 20)
        );
    }
    svg.push_str("</svg>");
    names.push_str("</p>");
    svg + &names
}
