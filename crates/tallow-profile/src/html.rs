//! The report as one HTML file: words, charts and tables, with everything in the file and nothing fetched.

mod charts;

use std::fmt::Write as _;
use std::path::Path;

use crate::table::milliseconds;
use crate::tree::Tree;
use crate::{Grouping, Profile, Result, Row, Table, folder};

/// Rows of a table that are shown at first.
const SHOWN: usize = 15;
/// Rows of a table that are in the file.
const KEPT: usize = 300;

impl Profile {
    /// Writes the report as one HTML file.
    ///
    /// # Errors
    /// [`Error::Write`](crate::Error::Write) names the file; what stood there before is untouched then.
    pub fn write_html(&self, path: impl AsRef<Path>) -> Result<()> {
        let page = self.to_html();
        folder::write(path.as_ref(), |file| {
            std::io::Write::write_all(file, page.as_bytes())
        })
    }

    /// The report as one HTML page.
    pub fn to_html(&self) -> String {
        let tree = Tree::of(self);
        let mut page = String::new();
        page.push_str("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
        page.push_str("<title>Tallow profile</title>\n<style>\n");
        page.push_str(include_str!("html/style.css"));
        page.push_str("</style></head><body>\n<h1>Where the time goes</h1>\n");
        page.push_str(&self.words());
        page.push_str("<div class=\"charts\">");
        section(
            &mut page,
            "Parts of a step",
            "parts",
            &charts::pie(&self.parts()),
        );
        let heading = match self.steps.len() {
            0 => "Over time",
            _ => "Step by step",
        };
        section(&mut page, heading, "steps", &charts::timeline(self, &tree));
        page.push_str("</div>");
        let operations = charts::bars(&self.top_operations(12), self.wall().as_nanos() as u64);
        section(&mut page, "Top operations", "operations", &operations);
        section(&mut page, "Memory", "memory", &charts::memory(self));
        page.push_str(&self.holders());
        for (grouping, heading) in [
            (Grouping::Operation, "By operation"),
            (Grouping::Module, "By module"),
            (Grouping::Shape, "By operation and shapes"),
        ] {
            let table = self.table(grouping);
            section(
                &mut page,
                heading,
                "table",
                &html_table(&table, &table.rows),
            );
            if !table.background.is_empty() && grouping == Grouping::Operation {
                let rows = html_table(&table, &table.background);
                section(&mut page, "On other threads", "background", &rows);
            }
        }
        if let Ok(svg) = self.flame_graph() {
            let frame = format!(
                "<iframe title=\"flame graph\" srcdoc=\"{}\"></iframe>",
                escape(&svg)
            );
            section(&mut page, "Flame graph", "flame", &frame);
        }
        page.push_str("\n<script>\n");
        page.push_str(include_str!("html/script.js"));
        page.push_str("</script></body></html>\n");
        page
    }

    fn words(&self) -> String {
        let bottlenecks = self.bottlenecks();
        let class = match bottlenecks.findings.is_empty() {
            true => "findings none",
            false => "findings",
        };
        let mut text = format!(
            "<div class=\"{class}\">{}</div>",
            escape(&bottlenecks.to_string())
        );
        let _ = write!(
            text,
            "<p>{} recorded, {:.1} % of it within spans; {:.1} GFLOP.",
            milliseconds(self.wall().as_nanos() as u64),
            100.0 * self.accounted(),
            self.flops() as f64 / 1e9
        );
        if let Some(machine) = &self.machine {
            let _ = write!(
                text,
                " This machine at its best: {:.0} GFLOP/s, {:.1} GB/s.",
                machine.flops / 1e9,
                machine.bandwidth / 1e9
            );
        }
        if self.dropped > 0 {
            let _ = write!(text, " {} spans were left out.", self.dropped);
        }
        text.push_str("</p>");
        text
    }

    fn holders(&self) -> String {
        if self.memory.holders.is_empty() {
            return String::new();
        }
        let mut rows = String::new();
        for held in &self.memory.holders {
            let _ = write!(
                rows,
                "<tr><td>{}</td><td>{}</td><td data-v=\"{}\">{:.2} MiB</td></tr>",
                escape(&held.what),
                escape(&held.module),
                held.bytes,
                held.bytes as f64 / f64::from(1 << 20)
            );
        }
        format!(
            "<h3>Who holds memory when tape and plans hold the most</h3><table><thead><tr><th>What</th><th>Module</th>\
             <th>Memory</th></tr></thead><tbody>{rows}</tbody></table>"
        )
    }
}

fn section(page: &mut String, heading: &str, id: &str, body: &str) {
    let _ = writeln!(
        page,
        "<section data-chart=\"{id}\"><h2>{}</h2>{body}</section>",
        escape(heading)
    );
}

fn html_table(table: &Table, rows: &[Row]) -> String {
    let mut text = String::from(
        "<table><thead><tr><th>What</th><th>Calls</th><th>Self</th><th>Self %</th><th>Total</th><th>GFLOP/s</th>\
         <th>Peak %</th></tr></thead><tbody>",
    );
    let wall = table.wall.as_nanos().max(1) as f64;
    for (index, row) in rows.iter().take(KEPT).enumerate() {
        let class = if index < SHOWN { "" } else { " class=\"more\"" };
        let machine = table.machine.as_ref();
        let peak = machine.and_then(|machine| row.share_of_peak(machine));
        let _ = write!(
            text,
            "<tr{class}><td>{}</td><td data-v=\"{}\">{}</td><td data-v=\"{}\">{}</td><td data-v=\"{3}\">{:.1}</td>\
             <td data-v=\"{}\">{}</td><td data-v=\"{}\">{}</td><td data-v=\"{}\">{}</td></tr>",
            escape(&row.label),
            row.calls,
            row.calls,
            row.self_time,
            milliseconds(row.self_time),
            100.0 * row.self_time as f64 / wall,
            row.total_time,
            milliseconds(row.total_time),
            row.gflops(),
            match row.flops {
                0 => "-".to_string(),
                _ => format!("{:.1}", row.gflops()),
            },
            peak.unwrap_or(0.0),
            peak.map_or("-".to_string(), |share| format!("{:.0}", 100.0 * share)),
        );
    }
    text.push_str("</tbody></table>");
    text
}

/// Text for HTML, in elements and attributes.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}
