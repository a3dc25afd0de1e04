//! Finds the constants of the time model again: least squares of the logarithm of predicted over published seconds, on the ten
//! rows of 2104.04473, table 1, by a pattern search.

use crate::plan::cluster::Cluster;
use crate::plan::rates::{CONSTANTS, Constants};
use crate::plan::tables::{Published, published};
use crate::plan::time::step_time;

/// Mean square of the logarithmic errors on the fitted rows.
fn loss(values: [f64; 4], rows: &[Published], cluster: &Cluster) -> f64 {
    let constants = of(values);
    let errors = rows.iter().map(|row| {
        let found = step_time(&row.shape, &row.layout, cluster, &constants).total;
        (found / row.seconds).ln().powi(2)
    });
    errors.sum::<f64>() / rows.len() as f64
}

fn of([matrix, memory, link, network]: [f64; 4]) -> Constants {
    Constants {
        matrix,
        memory,
        link,
        network,
    }
}

/// The constants with the least loss, each at most its nominal rate.
fn fit() -> (Constants, f64) {
    let cluster = Cluster::load("dgx-a100").unwrap();
    let mut rows = published();
    rows.retain(|row| row.is_fitted);
    assert_eq!(rows.len(), 10);
    let mut values = [0.6, 0.7, 0.7, 0.7];
    let mut best = loss(values, &rows, &cluster);
    let mut step = 0.1;
    while step > 1e-5 {
        let mut is_better = false;
        for i in 0..values.len() {
            for change in [-step, step] {
                let mut other = values;
                other[i] = (other[i] + change).clamp(0.05, 1.0);
                let found = loss(other, &rows, &cluster);
                if found < best {
                    (values, best, is_better) = (other, found, true);
                }
            }
        }
        if !is_better {
            step /= 2.0;
        }
    }
    (of(values), best.sqrt())
}

#[test]
fn the_constants_are_those_of_the_fit() {
    let (found, error) = fit();
    println!("{found:?}, root of the mean square {error}");
    let pairs = [
        (found.matrix, CONSTANTS.matrix),
        (found.memory, CONSTANTS.memory),
        (found.link, CONSTANTS.link),
        (found.network, CONSTANTS.network),
    ];
    for (found, committed) in pairs {
        assert!((found - committed).abs() < 2e-3, "{found} {committed}");
    }
}
