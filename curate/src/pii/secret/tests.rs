//! Secrets of every vendor in their forms, and texts that look like them.

use super::*;

fn found(text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    find(text, 0..text.len(), &mut out);
    out.into_iter().map(|span| &text[span]).collect()
}

/// `length` characters of the alphabet in a fixed order that repeats late.
fn characters(alphabet: &str, length: usize) -> String {
    let alphabet: Vec<char> = alphabet.chars().collect();
    (0..length)
        .map(|i| alphabet[(i * i * 7 + i * 3 + 5) % alphabet.len()])
        .collect()
}

const HEXADECIMAL: &str = "0123456789abcdef";
const BASE64: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const WORDS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";

#[test]
fn keys_of_twilio_are_found() {
    let hex = characters(HEXADECIMAL, 32);
    for head in ["AC", "SK"] {
        let sid = format!("{head}{hex}");
        assert_eq!(found(&format!("sid={sid};")), [&sid]);
        for other in [
            format!("x{sid}"),
            format!("{sid}0"),
            format!("{sid}g"),
            format!("{head}{}", hex.to_uppercase()),
            format!("{head}{}", &hex[1..]),
        ] {
            assert_eq!(found(&other), [""; 0], "{other}");
        }
    }
    let (sid, token) = (format!("AC{hex}"), characters("fedcba9876543210", 32));
    for text in [
        format!("Client(\"{sid}\", \"{token}\")"),
        format!("curl -u {sid}:{token} https://"),
    ] {
        assert_eq!(found(&text), [&sid, &token], "{text}");
    }
    for text in [
        format!("TWILIO_TOKEN={token}"),
        format!("auth_token: {token}"),
        format!("$twilio['x']; authToken = '{token}'"),
    ] {
        assert_eq!(found(&text), [&token], "{text}");
    }
    for text in [
        format!("md5: {token}"),
        format!("auth_token: {token}0"),
        "auth_token: 00000000000000000000000000000000".to_string(),
    ] {
        assert_eq!(found(&text), [""; 0], "{text}");
    }
}

#[test]
fn tokens_of_telegrams_bots_are_found() {
    let token = format!("110201543:AA{}", characters(WORDS, 33));
    assert_eq!(found(&format!("token = {token}")), [&token]);
    assert_eq!(
        found(&format!("https://api.telegram.org/bot{token}/getMe")),
        [&token]
    );
    for other in [
        format!("{token}x"),
        token[..token.len() - 1].to_string(),
        token[6..].to_string(),
        format!("x{token}"),
        token.to_lowercase(),
    ] {
        assert_eq!(found(&other), [""; 0], "{other}");
    }
}

#[test]
fn keys_of_azure_are_found() {
    let key = format!("{}==", characters(BASE64, 86));
    let text = format!(
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey={key};EndpointSuffix=core.windows.net"
    );
    assert_eq!(found(&text), [&key]);
    let bus = format!("{}=", characters(BASE64, 43));
    let text = format!(
        "Endpoint=sb://a.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey={bus}"
    );
    assert_eq!(found(&text), [&bus]);
    let escaped = bus
        .replace('+', "%2B")
        .replace('/', "%2f")
        .replace('=', "%3D");
    for signature in [&bus, &escaped] {
        let text =
            format!("https://a.blob.core.windows.net/c?sv=2022-11-02&sig={signature}&se=2030");
        assert_eq!(found(&text), [signature]);
    }
    for value in ["AccountKey=", "SharedAccessKey=", "?sig="] {
        for wrong in [&bus[1..], &key[1..], "<your key>", "%", "%3", "%zz"] {
            assert_eq!(found(&format!("{value}{wrong}")), [""; 0], "{value}{wrong}");
        }
    }
    let secret = format!("abc8Q~{}", characters(WORDS, 34));
    assert_eq!(found(&format!("secret {secret}.")), [&secret]);
    for other in [
        format!("x{secret}"),
        format!("{secret}xyz"),
        secret.replace("8Q", "xQ"),
        secret[..30].to_string(),
        "Q~".to_string(),
    ] {
        assert_eq!(found(&other), [""; 0], "{other}");
    }
}

#[test]
fn short_and_unquoted_passwords_are_found() {
    for (text, value) in [
        ("password: hunter2", "hunter2"),
        ("pwd=abc123", "abc123"),
        ("user=x;password=abc123;db=y", "abc123"),
        ("?login=x&passwd=s3cret&y", "s3cret"),
        ("DB_PASSWORD=p@ssword", "p@ssword"),
        ("\"password\": \"hunter2\",", "hunter2"),
        ("'pwd' => 'abc123'", "abc123"),
        ("cfg['password'] = 'a.b/c(1)'", "a.b/c(1)"),
        ("Password is set. password := `hunter2`", "hunter2"),
        ("Passwort: geheim1.", "geheim1"),
        ("(pwd: Tr0ub4dor&3)", "Tr0ub4dor"),
        (
            "\u{43f}\u{430}\u{440}\u{43e}\u{43b}\u{44c}: qwerty12",
            "qwerty12",
        ),
        ("\u{5bc6}\u{7801}\u{ff1a}abc12345", "abc12345"),
        ("password=1234", "1234"),
    ] {
        assert_eq!(found(text), [value], "{text:?}");
    }
}

#[test]
fn prose_code_and_placeholders_are_no_passwords() {
    for text in [
        "password: required",
        "Password: must have 8 characters",
        "password: 8-20 characters",
        "the password = your name",
        "password: xxxx11",
        "password: ********",
        "password=0000",
        "password == abc123",
        "password != abc123",
        "password: $PASSWORD1",
        "password=${DB_PASSWORD1}",
        "password=%PASS1%",
        "password: <password1>",
        "password = {{ secret1 }}",
        "password = config.password2",
        "password = get_password1()",
        "password = users[0]",
        "passwd = /etc/passwd1",
        "password: utf8",
        "pwd: SHA256",
        "password hash: abc123",
        "password_length = abc123",
        "password:\nabc123",
        "password: me2@example.org",
        "password: abc12",
        "password = \"hunter 2\"",
        "password: http://a/b1",
        "password: \u{e9}abc123",
        "password: abc123\u{e9}",
    ] {
        assert_eq!(found(text), [""; 0], "{text:?}");
    }
}
