//! Politeness towards servers: the program's name in every request, and the pauses that a busy server asks for.
//!
//! `Retry-After` (RFC 9110, section 10.2.3) comes with 429 Too Many Requests and 503 Service Unavailable, as seconds or as a
//! date. The `object_store` crate repeats such requests after pauses of its own, which grow; here the pause that the
//! server asks for is made before.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};

/// Name of the program in requests.
pub(crate) const USER_AGENT: &str = concat!("millrace/", env!("CARGO_PKG_VERSION"));
/// No server is waited for longer than this at once.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// The pause that an answer asks for: the value of its `Retry-After`, [`LONGEST_PAUSE`] at most. None of a value that is neither
/// a number of seconds nor a date.
pub(crate) fn pause_of(retry_after: &str) -> Option<Duration> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let text = retry_after.trim();
    let seconds = match text.parse::<u64>() {
        Ok(seconds) => seconds,
        Err(_) => seconds_of_date(text)?.saturating_sub(now.as_secs()),
    };
    Some(Duration::from_secs(seconds).min(LONGEST_PAUSE))
}

/// Seconds since 1970 of `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110, section 5.6.7).
fn seconds_of_date(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let words: Vec<&str> = text.split([' ', ',']).filter(|w| !w.is_empty()).collect();
    let [_, day, month, year, time, "GMT"] = words[..] else {
        return None;
    };
    let month = MONTHS.iter().position(|m| *m == month)? as u64;
    let (day, year): (u64, u64) = (day.parse().ok()?, year.parse().ok()?);
    let clock: Vec<u64> = time
        .split(':')
        .map(|part| part.parse().ok())
        .collect::<Option<_>>()?;
    let [hour, minute, second] = clock[..] else {
        return None;
    };
    if !(1970..10_000).contains(&year) || !(1..32).contains(&day) || hour > 23 || minute > 59 {
        return None;
    }
    // years that start in March, so that the leap day is the last
    let (year, month) = if month < 2 {
        (year - 1, month + 10)
    } else {
        (year, month - 2)
    };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    let days = days.checked_sub(719_468)?;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

/// Connections whose answers with `Retry-After` are handed on only after that pause.
#[derive(Debug)]
pub(super) struct Patient;

impl HttpConnector for Patient {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Waiting { client }))
    }
}

#[derive(Debug)]
struct Waiting {
    client: HttpClient,
}

impl HttpService for Waiting {
    fn call<'a, 'b>(
        &'a self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let answer = self.client.execute(request).await?;
            if matches!(answer.status().as_u16(), 429 | 503)
                && let Some(value) = answer.headers().get("retry-after")
                && let Some(pause) = value.to_str().ok().and_then(pause_of)
            {
                tokio::time::sleep(pause).await;
            }
            Ok(answer)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_seconds_or_dates_and_no_longer_than_five_minutes() {
        assert_eq!(pause_of(" 7 "), Some(Duration::from_secs(7)));
        assert_eq!(pause_of("86400"), Some(LONGEST_PAUSE));
        assert_eq!(
            pause_of("Sun, 06 Nov 1994 08:49:37 GMT"),
            Some(Duration::ZERO)
        );
        assert_eq!(
            pause_of("Fri, 31 Dec 9999 23:59:59 GMT"),
            Some(LONGEST_PAUSE)
        );
        for wrong in ["", "soon", "-1", "1.5", "Sun, 06 Nov 1994 08:49 GMT"] {
            assert_eq!(pause_of(wrong), None, "{wrong}");
        }
    }

    /// By `date -u -d DATE +%s`.
    #[test]
    fn dates_are_seconds_since_1970() {
        for (date, seconds) in [
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777),
            ("Tue, 29 Feb 2000 23:59:59 GMT", 951_868_799),
            ("Wed, 01 Mar 2000 00:00:00 GMT", 951_868_800),
            ("Tue, 19 Jan 2038 03:14:08 GMT", 2_147_483_648),
        ] {
            assert_eq!(seconds_of_date(date), Some(seconds), "{date}");
        }
    }
}
