//! Charts as inline SVG: horizontal bars, columns, lines. Colours come from the page's CSS variables, so that light
//! and dark mode follow the reader's system. Every chart has a title for screen readers and scales to the width of
//! the page.

use super::html::escape;
use std::fmt::Write;

/// One curve: name, CSS colour variable, points.
pub(super) struct Curve {
    pub name: String,
    pub colour: &'static str,
    pub points: Vec<(f64, f64)>,
    /// Draw dots instead of a line, for few measured points.
    pub dots: bool,
}

/// A number short enough for an axis.
pub(super) fn tick(v: f64) -> String {
    let a = v.abs();
    match a {
        _ if a >= 1e9 => format!("{:.1}G", v / 1e9),
        _ if a >= 1e6 => format!("{:.1}M", v / 1e6),
        _ if a >= 1e4 => format!("{:.0}k", v / 1e3),
        _ if a >= 100.0 || v.fract() == 0.0 => format!("{v:.0}"),
        _ if a >= 1.0 => format!("{v:.1}"),
        _ if a >= 0.01 => format!("{v:.2}"),
        _ => format!("{v:.1e}"),
    }
}

/// Round tick values that divide `low..high` into about five steps.
pub(super) fn ticks(low: f64, high: f64) -> Vec<f64> {
    let span = (high - low).max(f64::MIN_POSITIVE);
    let raw = span / 5.0;
    let unit = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .map(|m| m * unit)
        .into_iter()
        .find(|s| *s >= raw)
        .unwrap_or(raw);
    let first = (low / step).ceil();
    (0..12)
        .map(|i| (first + f64::from(i)) * step)
        .take_while(|t| *t <= high + step * 1e-6)
        .collect()
}

/// Lines over a shared x axis. `level` draws a dashed horizontal line with its label.
pub(super) fn lines(
    title: &str,
    x_name: &str,
    curves: &[Curve],
    level: Option<(f64, &str)>,
) -> String {
    let (w, h, left, right, top, bottom) = (720.0, 280.0, 76.0, 16.0, 14.0, 52.0);
    let points = || {
        curves
            .iter()
            .flat_map(|c| &c.points)
            .filter(|p| p.1.is_finite())
    };
    if points().next().is_none() {
        return "<p class=\"quiet\">Nothing measured.</p>".into();
    }
    let fold = |f: fn(f64, f64) -> f64, start: f64, of: fn(&(f64, f64)) -> f64| {
        points().map(of).fold(start, f)
    };
    let (x0, x1) = (
        fold(f64::min, f64::MAX, |p| p.0),
        fold(f64::max, f64::MIN, |p| p.0),
    );
    let (mut y0, mut y1) = (
        fold(f64::min, f64::MAX, |p| p.1),
        fold(f64::max, f64::MIN, |p| p.1),
    );
    if let Some((v, _)) = level {
        (y0, y1) = (y0.min(v), y1.max(v));
    }
    let pad = ((y1 - y0) * 0.06).max(y1.abs() * 1e-3).max(1e-9);
    (y0, y1) = (y0 - pad, y1 + pad);
    let x = |v: f64| left + (v - x0) / (x1 - x0).max(1e-12) * (w - left - right);
    let y = |v: f64| h - bottom - (v - y0) / (y1 - y0) * (h - top - bottom);
    let mut s = open(title, w, h);
    for t in ticks(y0, y1) {
        let _ = write!(
            s,
            "<line class=grid x1={left} x2={} y1={1:.1} y2={1:.1} />",
            w - right,
            y(t)
        );
        let _ = write!(
            s,
            "<text class=axis x={} y={:.1} text-anchor=end>{}</text>",
            left - 6.0,
            y(t) + 4.0,
            tick(t)
        );
    }
    for t in ticks(x0, x1) {
        let _ = write!(
            s,
            "<text class=axis x={:.1} y={} text-anchor=middle>{}</text>",
            x(t),
            h - 20.0,
            tick(t)
        );
    }
    let _ = write!(
        s,
        "<text class=axis x={} y={} text-anchor=end>{}</text>",
        w - right,
        h - 4.0,
        escape(x_name)
    );
    if let Some((v, name)) = level {
        let _ = write!(
            s,
            "<line class=level x1={left} x2={} y1={1:.1} y2={1:.1} />",
            w - right,
            y(v)
        );
        let _ = write!(
            s,
            "<text class=label x={} y={:.1} text-anchor=end>{}</text>",
            w - right,
            y(v) - 5.0,
            escape(name)
        );
    }
    for c in curves {
        if c.dots {
            for p in &c.points {
                let _ = write!(
                    s,
                    "<circle cx={:.1} cy={:.1} r=4 fill=\"var({})\" />",
                    x(p.0),
                    y(p.1),
                    c.colour
                );
            }
        }
        let path: Vec<String> = thin(&c.points)
            .iter()
            .map(|p| format!("{:.1},{:.1}", x(p.0), y(p.1)))
            .collect();
        let _ = write!(
            s,
            "<polyline fill=none stroke=\"var({})\" stroke-width=2 points=\"{}\" />",
            c.colour,
            path.join(" ")
        );
    }
    s.push_str("</svg>");
    s.push_str(&legend(curves));
    s
}

/// A long run has more steps than the page has pixels: keep at most 800 points, the last one always.
fn thin(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let every = points.len().div_ceil(800).max(1);
    let last = points.len().saturating_sub(1);
    let keep = |i: usize| i.is_multiple_of(every) || i == last;
    points
        .iter()
        .enumerate()
        .filter(|(i, p)| keep(*i) && p.1.is_finite())
        .map(|(_, p)| *p)
        .collect()
}

fn legend(curves: &[Curve]) -> String {
    let mut s = String::from("<p class=legend>");
    for c in curves {
        let _ = write!(
            s,
            "<span><i style=\"background:var({})\"></i>{}</span>",
            c.colour,
            escape(&c.name)
        );
    }
    s + "</p>"
}

/// One row of a bar chart.
pub(super) struct Bar {
    pub name: String,
    pub value: f64,
    /// Shown at the end of the bar.
    pub label: String,
    pub colour: &'static str,
}

/// Horizontal bars, as HTML rather than SVG so that names wrap on a phone.
pub(super) fn bars(rows: &[Bar]) -> String {
    if rows.is_empty() {
        return "<p class=\"quiet\">None.</p>".into();
    }
    let most = rows
        .iter()
        .map(|r| r.value)
        .fold(f64::MIN_POSITIVE, f64::max);
    let mut s = String::from("<div class=bars>");
    for r in rows {
        let _ = write!(
            s,
            "<div class=bar><span class=name>{}</span><span class=track><i style=\"width:{:.2}%;background:var({})\"></i></span><span class=value>{}</span></div>",
            escape(&r.name),
            (100.0 * r.value / most).clamp(0.0, 100.0),
            r.colour,
            escape(&r.label)
        );
    }
    s + "</div>"
}

/// Columns with a label under each, for histograms.
pub(super) fn columns(title: &str, rows: &[(String, f64)]) -> String {
    if rows.is_empty() {
        return "<p class=\"quiet\">None.</p>".into();
    }
    let (w, h, top, bottom) = (720.0, 220.0, 20.0, 30.0);
    let most = rows.iter().map(|r| r.1).fold(f64::MIN_POSITIVE, f64::max);
    let wide = w / rows.len() as f64;
    let mut s = open(title, w, h);
    for (i, (name, value)) in rows.iter().enumerate() {
        let x = i as f64 * wide;
        let tall = value / most * (h - top - bottom);
        let y = h - bottom - tall;
        let _ = write!(
            s,
            "<rect x={:.1} y={y:.1} width={:.1} height={tall:.1} rx=2 fill=\"var(--a)\" />",
            x + wide * 0.08,
            wide * 0.84
        );
        let middle = x + wide / 2.0;
        let _ = write!(
            s,
            "<text class=axis x={middle:.1} y={} text-anchor=middle>{}</text>",
            h - 10.0,
            escape(name)
        );
        let _ = write!(
            s,
            "<text class=axis x={middle:.1} y={:.1} text-anchor=middle>{}</text>",
            y - 5.0,
            tick(*value)
        );
    }
    s + "</svg>"
}

/// The start of a chart of this size with a title for screen readers.
pub(super) fn open(title: &str, w: f64, h: f64) -> String {
    let title = escape(title);
    format!("<svg viewBox=\"0 0 {w} {h}\" role=img aria-label=\"{title}\"><title>{title}</title>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(ticks(0.0, 10.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert!(ticks(3.2, 9.1).iter().all(|t| (3.2..=9.2).contains(t)));
    }

    #[test]
    fn thinning_keeps_both_ends() {
        let points: Vec<(f64, f64)> = (0..5000).map(|i| (f64::from(i), 1.0)).collect();
        let kept = thin(&points);
        assert!(kept.len() <= 801);
        assert_eq!((kept[0].0, kept[kept.len() - 1].0), (0.0, 4999.0));
    }

    #[test]
    fn names_are_escaped_everywhere() {
        let evil = "<script>\"&";
        let bar = Bar {
            name: evil.into(),
            value: 1.0,
            label: evil.into(),
            colour: "--a",
        };
        let curve = Curve {
            name: evil.into(),
            colour: "--a",
            points: vec![(0.0, 1.0), (1.0, 2.0)],
            dots: false,
        };
        for s in [
            bars(&[bar]),
            columns(evil, &[(evil.into(), 1.0)]),
            lines(evil, evil, &[curve], Some((1.0, evil))),
        ] {
            assert!(!s.contains("<script"), "{s}");
        }
    }
}
