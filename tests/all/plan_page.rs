//! `millrace plan --html`: the page has every section, its figures are those of `--json`, and files are kept.

use crate::jobs::{output, root, succeed};
use serde_json::Value;
use std::path::Path;

/// Most bytes of a page.
const MOST_BYTES: usize = 1_000_000;

fn recipe(name: &str) -> String {
    let path = root().join(format!("pipelines/jobs/recipes/{name}.toml"));
    path.to_str().unwrap().to_owned()
}

/// The page and the JSON of one call.
fn planned(args: &[&str]) -> (String, Value) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("plan.html");
    let more = ["--json", "--html", file.to_str().unwrap()];
    let printed = succeed(&[&["plan"][..], args, &more].concat()).stdout;
    let page = std::fs::read_to_string(&file).unwrap();
    (page, serde_json::from_slice(&printed).unwrap())
}

/// A section of the page.
fn section<'a>(page: &'a str, id: &str) -> &'a str {
    let start = page.find(&format!("<section id=\"{id}\">"));
    let start = start.unwrap_or_else(|| panic!("no section {id}"));
    &page[start..start + page[start..].find("</section>").unwrap()]
}

/// Text of an element without its tags.
fn text(html: &str) -> String {
    let mut out = String::new();
    for piece in html.split('<') {
        out += piece.split_once('>').map_or(piece, |(_, rest)| rest);
    }
    out.replace("&nbsp;", " ")
        .replace("&quot;", "\"")
        .replace("&lt;", "<")
        .replace("&amp;", "&")
}

/// The body rows of all tables of a section, as texts of their cells.
fn rows(section: &str) -> Vec<Vec<String>> {
    let rows = section.split("<tr>").filter(|row| row.contains("<td"));
    rows.map(|row| {
        let cells = row.split("<td").skip(1);
        let cells = cells.filter_map(|cell| cell.split("</td>").next());
        cells.map(|cell| text(&format!("<td{cell}"))).collect()
    })
    .collect()
}

/// Whether a text shows a number with the digits that it has.
fn assert_shows(text: &str, number: &Value) {
    let word = text.split_whitespace().next().unwrap_or_default();
    let shown = word.replace([',', '%', '+'], "");
    let scale = if word.ends_with('%') { 100.0 } else { 1.0 };
    let wanted = scale
        * number
            .as_f64()
            .unwrap_or_else(|| panic!("{text}: {number}"));
    let decimals = shown.split_once('.').map_or(0, |(_, digits)| digits.len());
    let half = 0.5001 * 0.1_f64.powi(i32::try_from(decimals).unwrap());
    let found: f64 = shown
        .parse()
        .unwrap_or_else(|_| panic!("{text} is no number"));
    assert!((found - wanted).abs() <= half, "{text}: {wanted}");
}

#[test]
fn the_page_of_a_plan_has_every_section_and_the_figures_of_the_json() {
    let recipe = recipe("gpt2_1558m");
    let args = [
        &recipe,
        "--cluster",
        "dgx-h100",
        "--devices",
        "16",
        "--vocab",
        "50304",
        "--set",
        "train.global_batch=16",
    ];
    let (page, json) = planned(&args);
    assert!(page.starts_with("<!doctype html>\n<html lang=en>"));
    let subtitle = "<p>Plan of a training on 16 devices of dgx-h100, 20";
    for part in ["<h1>gpt2_1558m</h1>", subtitle, "Written by millrace "] {
        assert!(page.contains(part), "{part}");
    }
    for word in ["http:", "https:", "src=", "<script", "@import", "url("] {
        assert!(!page.contains(word), "{word}");
    }

    let layouts = rows(section(&page, "layouts"));
    let wanted = json["layouts"].as_array().unwrap();
    assert_eq!(layouts.len(), wanted.len());
    for (row, of) in layouts.iter().zip(wanted) {
        for (cell, key) in [
            "tp",
            "cp",
            "pp",
            "virtual_stages",
            "dp",
            "ep",
            "micro_batch",
            "zero",
        ]
        .iter()
        .enumerate()
        {
            assert_shows(&row[cell], &of["layout"][*key]);
        }
        let recompute = of["layout"]["recompute"].as_str().unwrap();
        assert!(row[9].starts_with(recompute), "{row:?}");
        match of["layout"]["recompute_layers"].as_u64() {
            Some(layers) => assert!(row[9].contains(&format!("{layers} layers")), "{row:?}"),
            None => assert_eq!(row[9], recompute),
        }
        assert_eq!(row[10], of["layout"]["precision"].as_str().unwrap());
        for (cell, key) in [
            "step_s",
            "tokens_per_s_per_device",
            "model_tflops_per_device",
            "mfu",
        ]
        .iter()
        .enumerate()
        {
            assert_shows(&row[11 + cell], &of[*key]);
        }
        assert_shows(&row[15], &of["memory_gb"]["total"]);
        assert_shows(&row[16], &of["memory_gb"]["millrace"]);
    }
    let best = &json["best"];
    let parts = best["seconds"].as_object().unwrap();
    let sum: f64 = parts.values().map(|part| part.as_f64().unwrap()).sum();
    assert!((sum / best["step_s"].as_f64().unwrap() - 1.0).abs() < 1e-9);

    let stages = rows(section(&page, "memory"));
    let wanted = json["memory_by_stage"].as_array().unwrap();
    assert_eq!(stages.len(), wanted.len());
    let keys = [
        "stage",
        "layers",
        "micro_batches_in_flight",
        "weights",
        "gradients",
        "optimizer",
        "activations",
        "total",
    ];
    for (row, of) in stages.iter().zip(wanted) {
        for (cell, key) in keys.iter().enumerate() {
            assert_shows(&row[cell], &of[*key]);
        }
        assert_shows(&row[8], &of["millrace"]["total"]);
    }
    // the fullest stage is the one that the search compares with a device's memory
    let fullest = wanted
        .iter()
        .map(|of| of["total"].as_f64().unwrap())
        .fold(0.0, f64::max);
    assert_eq!(best["memory_gb"]["total"].as_f64().unwrap(), fullest);

    let sensitivity = rows(section(&page, "sensitivity"));
    let rates = json["sensitivity"]["rates"].as_array().unwrap();
    let settings = json["sensitivity"]["settings"].as_array().unwrap();
    assert_eq!(rates.len(), 8);
    assert_eq!(sensitivity.len(), rates.len() + settings.len());
    for (row, of) in sensitivity.iter().zip(rates) {
        assert_eq!(row[0], of["rate"].as_str().unwrap());
        assert_shows(&row[2], &of["step_s"]);
        assert_shows(&row[3], &of["change"]);
    }
    for (row, of) in sensitivity[rates.len()..].iter().zip(settings) {
        match of["only_change"]["refused"].as_str() {
            Some(reason) => assert_eq!(row[1], reason),
            None => assert_shows(&row[1], &of["only_change"]["step_s"]),
        }
        if of["fastest"].is_object() {
            assert_shows(&row[2], &of["fastest"]["step_s"]);
        }
    }

    let rejected = rows(section(&page, "rejected"));
    let wanted = json["rejected_by_reason"].as_array().unwrap();
    assert_eq!(rejected.len(), wanted.len());
    for (row, of) in rejected.iter().zip(wanted) {
        assert_shows(&row[0], &of["count"]);
        assert_eq!(row[1], of["reason"].as_str().unwrap());
    }
    let counts = wanted.iter().map(|of| of["count"].as_u64().unwrap());
    assert_eq!(
        counts.sum::<u64>(),
        json["rejected"].as_array().unwrap().len() as u64
    );

    let map = rows(section(&page, "placement"));
    let nodes = json["placement"]["map"].as_array().unwrap();
    assert_eq!(nodes.len(), 2);
    assert_eq!(map.len(), 5 + nodes.len());
    for (row, node) in map[5..].iter().zip(nodes) {
        for (cell, device) in row.iter().zip(node["devices"].as_array().unwrap()) {
            for word in cell.split_inclusive(char::is_numeric).map(str::trim) {
                let (axis, number) = word.split_once(' ').unwrap();
                assert_eq!(device[axis].to_string(), number, "{cell}");
            }
        }
    }

    let training = rows(section(&page, "training"));
    let figure = |name: &str| &training.iter().find(|row| row[0] == name).unwrap()[1];
    let of = &json["training"];
    assert_shows(figure("steps"), &of["steps"]);
    assert_shows(figure("expected failures"), &of["failures"]);
    assert_shows(figure("checkpoint"), &of["checkpoint_gb"]);
    let scaled = |key: &str, scale: f64| Value::from(of[key].as_f64().unwrap() / scale);
    assert_shows(figure("energy"), &scaled("kwh", 1e3));
    let days = figure("time").split_once('(').unwrap().1;
    assert_shows(days, &scaled("seconds", 86_400.0));
    let price = "not known: the cluster has no price_per_hour";
    assert_eq!(figure("price"), price);
    let job = text(section(&page, "job"));
    assert!(job.contains(json["toml"].as_str().unwrap()), "{job}");
}

/// The page of a plan of a recipe in `file`: small, with all its sections.
pub(crate) fn assert_is_whole(file: &Path) {
    let page = std::fs::read_to_string(file).unwrap();
    assert!(
        page.len() < MOST_BYTES,
        "{}: {} bytes",
        file.display(),
        page.len()
    );
    for id in [
        "layouts",
        "step",
        "memory",
        "placement",
        "sensitivity",
        "training",
        "rejected",
        "job",
    ] {
        section(&page, id);
    }
    // the keys of the best layout, which need not be the first row
    let job = text(section(&page, "job"));
    let has_one_stage = job.contains("\npp = 1\n");
    assert_eq!(
        page.contains("<section id=\"pipeline\">"),
        !has_one_stage,
        "{}",
        file.display()
    );
}

#[test]
fn the_page_of_a_server_has_the_figures_of_the_json() {
    let recipe = recipe("llama3_70b");
    let args = [
        &recipe,
        "--cluster",
        "dgx-h100",
        "--vocab",
        "128256",
        "--serve",
    ];
    let (page, json) = planned(&args);
    let ways = rows(section(&page, "ways"));
    let front = json["front"].as_array().unwrap();
    assert_eq!(ways.len(), front.len());
    let milliseconds = |of: &Value| Value::from(1e3 * of.as_f64().unwrap());
    for (row, of) in ways.iter().zip(front) {
        assert_shows(&row[0], &of["tp"]);
        assert_shows(&row[1], &of["ep"]);
        assert_eq!(row[2], of["weights"].as_str().unwrap());
        assert_shows(&row[3], &of["requests"]);
        assert_shows(&row[4], &milliseconds(&of["ttft_s"]));
        assert_shows(&row[5], &milliseconds(&of["tpot_s"]));
        assert_shows(&row[6], &of["tokens_per_s_per_device"]);
        assert_shows(&row[7], &of["memory_gb"]["total"]);
    }
    assert_eq!(
        section(&page, "front").matches("<circle").count(),
        front.len()
    );
    assert_eq!(section(&page, "memory").matches("<u ").count(), front.len());
    assert_eq!(
        rows(section(&page, "rejected")).len(),
        json["do_not_fit"].as_array().unwrap().len()
    );
}

#[test]
fn a_file_that_exists_is_kept_and_one_that_cannot_be_written_is_wrong_use() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("kept");
    std::fs::write(&file, "mine").unwrap();
    let recipe = recipe("gpt2_124m");
    let refused = |to: &Path, code: i32| {
        let args = ["plan", &recipe, "--cluster", "dgx-a100", "--devices", "8"];
        let found = output(&[&args[..], &["--html", to.to_str().unwrap()]].concat());
        assert_eq!(found.status.code(), Some(code));
        assert!(found.stdout.is_empty(), "refused before the search");
        String::from_utf8(found.stderr).unwrap()
    };
    let said = refused(&file, 2);
    assert!(
        said.contains("--html") && said.contains("kept exists"),
        "{said}"
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    let said = refused(&file.join("page.html"), 2);
    assert!(
        said.contains("cannot write") && said.contains("page.html"),
        "{said}"
    );
    let missing = dir.path().join("missing");
    let said = refused(&missing.join("page.html"), 2);
    assert!(said.contains("cannot write"), "{said}");
    assert!(!missing.exists(), "a mistyped folder is not made");
    // a plan without a layout that fits has a page as well, and the same exit code as without
    let page = dir.path().join("none.html");
    let large = root().join("pipelines/jobs/recipes/gpt_1t.toml");
    let args = [
        "plan",
        large.to_str().unwrap(),
        "--cluster",
        "dgx-a100",
        "--devices",
        "16",
    ];
    let found = output(&[&args[..], &["--html", page.to_str().unwrap()]].concat());
    assert_eq!(found.status.code(), Some(1));
    let page = std::fs::read_to_string(&page).unwrap();
    let layouts = section(&page, "layouts");
    assert!(layouts.contains("The nearest, tp "), "{layouts}");
    assert!(!page.contains("<section id=\"memory\">"));
}
