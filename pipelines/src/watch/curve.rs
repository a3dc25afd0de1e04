//! A field's curve in bounded memory, and the part of it that a page draws.
//!
//! A curve holds up to [`MOST`] points. When it is full, every four neighbouring points become two, the smallest and the
//! largest of them, so that a spike is never lost, however long the run. A window of a curve is thinned in the same way to the
//! number of points that the page asks for.

/// Points that a curve holds: every step of runs with fewer.
const MOST: usize = 1 << 16;

/// A number of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    /// Step, counted from 1.
    pub step: u64,
    /// Tokens trained on up to this step.
    pub tokens: f64,
    /// Seconds of training up to this step.
    pub seconds: f64,
    pub value: f64,
}

/// The unit of the horizontal axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Axis {
    Step,
    Tokens,
    /// Seconds of training.
    Time,
}

impl Axis {
    fn of(self, point: &Point) -> f64 {
        match self {
            Axis::Step => point.step as f64,
            Axis::Tokens => point.tokens,
            Axis::Time => point.seconds,
        }
    }
}

/// The part of a curve that is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Window {
    pub axis: Axis,
    /// Left end.
    pub from: f64,
    /// Right end.
    pub to: f64,
    /// Points at most; 4 or more.
    pub points: usize,
    /// Weight of the past in the moving average, 0 to below 1; 0: none.
    pub smoothing: f64,
}

/// A point on the page: horizontal, vertical.
pub(super) type Xy = [f64; 2];

/// Lines of a curve on the page.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Drawn {
    /// The curve.
    pub points: Vec<Xy>,
    /// Its moving average; empty without smoothing.
    pub smoothed: Vec<Xy>,
}

/// The smallest and the largest of some neighbouring points.
#[derive(Clone, Copy, Debug)]
struct Extremes {
    least: Point,
    most: Point,
    /// Points that they stand for.
    count: usize,
}

impl Extremes {
    fn of(point: Point) -> Extremes {
        Extremes {
            least: point,
            most: point,
            count: 1,
        }
    }

    fn add(&mut self, point: Point) {
        if point.value < self.least.value {
            self.least = point;
        }
        if point.value > self.most.value {
            self.most = point;
        }
        self.count += 1;
    }

    /// Both in the order of steps; one if they are the same.
    fn in_order(&self) -> impl Iterator<Item = Point> + use<> {
        let is_rising = self.least.step <= self.most.step;
        let (first, second) = match is_rising {
            true => (self.least, self.most),
            false => (self.most, self.least),
        };
        let second = (first.step != second.step).then_some(second);
        [Some(first), second].into_iter().flatten()
    }
}

/// The curve of a field. Points that are not finite are not part of it.
#[derive(Debug)]
pub(super) struct Curve {
    points: Vec<Point>,
    /// Points of the run behind each pair of points here; 1: every point is here.
    per_pair: usize,
    /// Points that do not make a pair yet.
    waiting: Option<Extremes>,
    last: Option<Point>,
}

impl Curve {
    pub(super) fn new() -> Curve {
        Curve {
            points: Vec::new(),
            per_pair: 1,
            waiting: None,
            last: None,
        }
    }

    /// Adds a point behind the others. One with the step of the last takes its place.
    pub(super) fn push(&mut self, point: Point) {
        if !point.value.is_finite() {
            return;
        }
        if self.last.is_some_and(|last| last.step >= point.step) {
            self.cut(point.step);
        }
        self.last = Some(point);
        if self.per_pair == 1 {
            self.points.push(point);
        } else {
            let waiting = match self.waiting.take() {
                None => Extremes::of(point),
                Some(mut waiting) => {
                    waiting.add(point);
                    waiting
                }
            };
            match waiting.count >= self.per_pair {
                true => self.points.extend(waiting.in_order()),
                false => self.waiting = Some(waiting),
            }
        }
        if self.points.len() >= MOST {
            self.halve();
        }
    }

    fn halve(&mut self) {
        let mut kept = Vec::with_capacity(MOST);
        for group in self.points.chunks(4) {
            kept.extend(extremes(group).into_iter().flat_map(|e| e.in_order()));
        }
        self.points = kept;
        self.per_pair = match self.per_pair {
            1 => 4,
            n => n * 2,
        };
    }

    /// Removes the points from `step` on.
    pub(super) fn cut(&mut self, step: u64) {
        let is_kept = |point: &Point| point.step < step;
        let waiting: Vec<Point> = (self.waiting.iter().flat_map(Extremes::in_order))
            .filter(is_kept)
            .collect();
        self.waiting = extremes(&waiting);
        self.points.truncate(self.points.partition_point(is_kept));
        self.last = (self.last.filter(is_kept))
            .or(waiting.last().copied())
            .or(self.points.last().copied());
    }

    /// The newest point.
    pub(super) fn last(&self) -> Option<Point> {
        self.last
    }

    /// All points that are held, in order.
    fn held(&self) -> Vec<Point> {
        let mut held = self.points.clone();
        held.extend(self.waiting.iter().flat_map(Extremes::in_order));
        let end = held.last().map(|point| point.step);
        held.extend(self.last.filter(|last| Some(last.step) > end));
        held
    }

    /// Points of both lines of [`Curve::draw`] at most.
    pub(super) fn most(&self, window: &Window) -> usize {
        // those that wait are two at most, and the last may come behind them
        let points = window.points.min(self.points.len() + 3);
        match window.smoothing > 0.0 {
            true => 2 * points,
            false => points,
        }
    }

    /// The part of the curve in a window, with a point on either side of it, so that lines reach its ends.
    pub(super) fn draw(&self, window: &Window) -> Drawn {
        let held = self.held();
        let all: Vec<Xy> = (held.iter())
            .map(|point| [window.axis.of(point), point.value])
            .collect();
        let first = all.partition_point(|place| place[0] < window.from);
        let end = all.partition_point(|place| place[0] <= window.to);
        let (first, end) = (first.saturating_sub(1), (end + 1).min(all.len()));
        let part = |places: &[Xy]| {
            let places = places.get(first..end).unwrap_or_default();
            thin(places, window.points)
        };
        Drawn {
            points: part(&all),
            smoothed: match window.smoothing > 0.0 {
                true => part(&moving_average(&all, window.smoothing)),
                false => Vec::new(),
            },
        }
    }
}

fn extremes(points: &[Point]) -> Option<Extremes> {
    let (first, rest) = points.split_first()?;
    let mut found = Extremes::of(*first);
    rest.iter().for_each(|point| found.add(*point));
    Some(found)
}

/// At most `most` places (4 or more): the first, the last, and the smallest and largest of equal parts of those between.
fn thin(places: &[Xy], most: usize) -> Vec<Xy> {
    let [first, between @ .., last] = places else {
        return places.to_vec();
    };
    if places.len() <= most {
        return places.to_vec();
    }
    let parts = (most.max(4) - 2) / 2;
    let mut kept = vec![*first];
    for part in 0..parts {
        let part = &between[part * between.len() / parts..(part + 1) * between.len() / parts];
        let Some((mut least, mut largest)) = (!part.is_empty()).then_some((0, 0)) else {
            continue;
        };
        for (at, place) in part.iter().enumerate() {
            if place[1] < part[least][1] {
                least = at;
            }
            if place[1] > part[largest][1] {
                largest = at;
            }
        }
        kept.push(part[least.min(largest)]);
        if least != largest {
            kept.push(part[least.max(largest)]);
        }
    }
    kept.push(*last);
    kept
}

/// Exponential moving average: a_n = w a_(n-1) + (1 - w) v_n from a_0 = 0, over 1 - w^n, which takes the start's zero out
/// (Kingma & Ba 2015, arXiv:1412.6980, section 3).
fn moving_average(places: &[Xy], weight: f64) -> Vec<Xy> {
    let (mut sum, mut of_start) = (0.0, 1.0);
    let one = |place: &Xy| {
        sum = weight * sum + (1.0 - weight) * place[1];
        of_start *= weight;
        [place[0], sum / (1.0 - of_start)]
    };
    places.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(step: u64, value: f64) -> Point {
        Point {
            step,
            tokens: 10.0 * step as f64,
            seconds: 0.5 * step as f64,
            value,
        }
    }

    fn curve(values: &[f64]) -> Curve {
        let mut curve = Curve::new();
        for (at, value) in values.iter().enumerate() {
            curve.push(point(at as u64 + 1, *value));
        }
        curve
    }

    const ALL: Window = Window {
        axis: Axis::Step,
        from: f64::NEG_INFINITY,
        to: f64::INFINITY,
        points: 1000,
        smoothing: 0.0,
    };

    #[test]
    fn thinning_keeps_the_ends_and_the_smallest_and_largest_of_each_part() {
        // between the ends two parts: 5 1 9 4 and 2 8 3 7
        let values = [6.0, 5.0, 1.0, 9.0, 4.0, 2.0, 8.0, 3.0, 7.0, 0.5];
        let places: Vec<Xy> = (values.iter().enumerate())
            .map(|(at, value)| [at as f64, *value])
            .collect();
        let want = [
            [0.0, 6.0],
            [2.0, 1.0],
            [3.0, 9.0],
            [5.0, 2.0],
            [6.0, 8.0],
            [9.0, 0.5],
        ];
        assert_eq!(thin(&places, 6), want);
        assert_eq!(thin(&places, 10), places);
        assert_eq!(
            thin(&places, 4),
            [[0.0, 6.0], [2.0, 1.0], [3.0, 9.0], [9.0, 0.5]]
        );
    }

    #[test]
    fn a_long_run_keeps_every_spike_in_bounded_memory() {
        let mut curve = Curve::new();
        let steps = 1_000_000;
        for step in 1..=steps {
            let value = match step {
                123_457 => 1e6,
                777_777 => -1e6,
                999_999 => 55.0,
                _ => 2.0 + (step % 7) as f64,
            };
            curve.push(point(step, value));
            assert!(curve.points.len() < MOST);
        }
        let found = curve.draw(&Window { points: 500, ..ALL }).points;
        assert!(found.len() <= 500, "{}", found.len());
        for spike in [[123_457.0, 1e6], [777_777.0, -1e6], [999_999.0, 55.0]] {
            assert!(found.contains(&spike), "{spike:?}");
        }
        let ends = [found[0][0], found[found.len() - 1][0]];
        assert_eq!(ends[1], 1e6);
        assert!(ends[0] <= 64.0, "{ends:?}");
        assert!(found.is_sorted_by(|a, b| a[0] < b[0]));
    }

    #[test]
    fn every_step_of_a_run_of_65535_steps_is_held() {
        let curve = curve(&vec![1.0; MOST - 1]);
        let window = Window {
            from: 40_000.0,
            to: 40_010.0,
            ..ALL
        };
        let steps: Vec<f64> = curve.draw(&window).points.iter().map(|p| p[0]).collect();
        let want: Vec<f64> = (39_999..=40_011).map(f64::from).collect();
        assert_eq!(steps, want);
    }

    #[test]
    fn a_window_is_in_the_unit_of_its_axis_and_has_a_neighbour_on_either_side() {
        let curve = curve(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let of = |axis, from, to| {
            let window = Window {
                axis,
                from,
                to,
                ..ALL
            };
            curve.draw(&window).points
        };
        let want = [[20.0, 2.0], [30.0, 3.0], [40.0, 4.0]];
        assert_eq!(of(Axis::Tokens, 25.0, 35.0), want);
        assert_eq!(
            of(Axis::Time, 2.5, 99.0),
            [[2.0, 4.0], [2.5, 5.0], [3.0, 6.0]]
        );
        assert_eq!(of(Axis::Step, 90.0, 99.0), [[6.0, 6.0]]);
    }

    #[test]
    fn a_step_that_comes_again_takes_the_place_of_the_first_and_of_those_behind_it() {
        let mut curve = curve(&[1.0, 2.0, 3.0, 4.0]);
        curve.push(point(3, 30.0));
        assert_eq!(
            curve.draw(&ALL).points,
            [[1.0, 1.0], [2.0, 2.0], [3.0, 30.0]]
        );
        curve.cut(1);
        assert_eq!((curve.draw(&ALL).points, curve.last()), (Vec::new(), None));
    }

    #[test]
    fn the_points_of_a_drawing_are_bounded_before_it_is_drawn() {
        let curve = curve(&vec![1.0; MOST + 2]);
        for (points, smoothing) in [(4, 0.0), (1000, 0.5), (10_000, 0.0)] {
            let window = Window {
                points,
                smoothing,
                ..ALL
            };
            let drawn = curve.draw(&window);
            let found = drawn.points.len() + drawn.smoothed.len();
            let most = curve.most(&window);
            let lines = if smoothing > 0.0 { 2 } else { 1 };
            assert!(found <= most && most <= lines * points, "{found} {most}");
        }
        assert!(Curve::new().most(&ALL) <= 3);
    }

    #[test]
    fn a_number_that_is_not_finite_is_no_point() {
        let curve = curve(&[1.0, f64::NAN, f64::INFINITY, 4.0]);
        assert_eq!(curve.draw(&ALL).points, [[1.0, 1.0], [4.0, 4.0]]);
    }

    #[test]
    fn the_moving_average_begins_at_the_first_value() {
        // w = 1/2: 4; (4/4 + 8/2) / (3/4) = 20/3; (5/2 + 2/2) / (7/8) = 4
        let window = Window {
            smoothing: 0.5,
            ..ALL
        };
        let found = curve(&[4.0, 8.0, 2.0]).draw(&window).smoothed;
        let want = [4.0, 20.0 / 3.0, 4.0];
        for (found, want) in found.iter().zip(want) {
            assert!((found[1] - want).abs() < 1e-12, "{found:?} {want}");
        }
        assert_eq!(found.len(), 3);
    }
}
