//! Threads of the big forum engines: every post comes, profiles, signatures and buttons stay away.
//!
//! The pages are written here after the engines' public templates, with their classes and ids.

use curate::extract::{ExtractConfig, PageSource, extract_page};

const FIRST: &str = "My pump runs, but no water comes out of the pipe. What can I do?";
const SECOND: &str = "Is the valve open?";
const THIRD: &str = "It was closed. Thank you, now it works!";
const COMMENT: &str = "Which pump is it, and how old?";
const TITLE: &str = "Pump without water";

fn text(page: &str, comments: bool) -> String {
    let source = PageSource {
        bytes: page.as_bytes(),
        ..PageSource::default()
    };
    let config = ExtractConfig {
        comments,
        ..ExtractConfig::default()
    };
    extract_page(&source, &config).text
}

fn page(body: &str) -> String {
    format!(
        "<!doctype html><html lang=en><head><title>{TITLE} - Forum</title></head><body>{body}</body></html>"
    )
}

/// The post number `i`, from 1, with a text.
type Post = fn(usize, &str) -> String;

/// A page with the three posts.
fn thread(head: &str, post: Post, tail: &str) -> String {
    let posts: String = [FIRST, SECOND, THIRD]
        .iter()
        .enumerate()
        .map(|(i, text)| post(i + 1, text))
        .collect();
    page(&format!("{head}{posts}{tail}"))
}

fn discourse() -> String {
    let inner = thread(
        "",
        |i, text| {
            format!(
                "<div id='post_{i}' itemprop='comment' itemscope itemtype='http://schema.org/Comment' class='topic-body crawler-post'>\
         <div class='crawler-post-meta'><span class='creator'><a href=/u/ann><span itemprop=name>ann</span></a></span>\
         <time class='post-time'>May {i}, 2024, 9:00am</time><span itemprop='position'>{i}</span></div>\
         <div class='post' itemprop='text'><p>{text}</p></div><div class='post-likes'>{i} Likes</div></div>"
            )
        },
        "",
    );
    let body = &inner[inner.find("<body>").unwrap() + 6..inner.find("</body>").unwrap()];
    page(&format!(
        "<section id=main></section><noscript data-path='/t/pump/1'><header class='d-header'><a href=/>Garden forum</a></header>\
         <div id='main-outlet' class='wrap' role=main><div id='topic-title'><h1><a href=/t/pump/1>{TITLE}</a></h1></div>{body}\
         <div class='crawler-linkback-list'></div></div><footer class='crawler-footer'><a href=/categories>Categories</a> \
         <a href=/guidelines>Guidelines</a><p>Powered by <a href=x>Discourse</a>, best viewed with JavaScript enabled</p></footer>\
         </noscript>"
    ))
}

fn discourse_rendered() -> String {
    thread(
        &format!("<div id=topic-title><h1 class=fancy-title>{TITLE}</h1></div>"),
        |i, text| {
            format!(
                "<article id=post_{i} class='boxed onscreen-post'><div class='topic-avatar'>ann</div><div class='topic-body clearfix'>\
         <div class='topic-meta-data'>ann {i}d</div><div class='regular contents'><div class=cooked><p>{text}</p></div>\
         <nav class=post-controls><button>Like</button><button>Reply</button></nav></div></div></article>"
            )
        },
        "<div class=suggested-topics><h3>Suggested Topics</h3><a href=x>Another pump</a></div>",
    )
}

fn phpbb() -> String {
    thread(
        &format!("<h2 class='topic-title'><a href=x>{TITLE}</a></h2>"),
        |i, text| {
            format!(
                "<div id=p{i} class='post has-profile bg2'><div class=inner><dl class=postprofile><dt>ann</dt><dd>Posts: 20{i}</dd>\
         <dd>Joined: 2011</dd></dl><div class=postbody><div id=post_content{i}><h3><a href=x>Re: {TITLE}</a></h3>\
         <p class=author>by ann, May {i}, 2024</p><div class=content>{text}</div><div class=signature>Life is short</div>\
         </div></div></div></div>"
            )
        },
        "<div class=copyright>Powered by phpBB Forum Software</div>",
    )
}

fn phpbb2() -> String {
    thread(
        &format!(
            "<a class=maintitle href=x>{TITLE}</a><h1>{TITLE}</h1><table class=forumline><tr><th>Author</th><th>Message</th></tr></table>"
        ),
        |i, text| {
            format!(
                "<table class=forumline><tr><td class=row1><span class=name><b>ann</b></span><span class=postdetails>Posts: 20{i}</span></td>\
         <td class=row1><table><tr><td><span class=postdetails>Posted: May {i}, 2024</span></td></tr>\
         <tr><td colspan=2><span class=postbody>{text}</span><span class=gensmall><br><br>Last edited by ann</span></td></tr></table></td></tr></table>"
            )
        },
        "<div class=copyright>Powered by phpBB</div>",
    )
}

fn vbulletin3() -> String {
    thread(
        &format!("<h1>{TITLE}</h1>"),
        |i, text| {
            format!(
                "<table id=post{i} class=tborder><tr><td class=thead>May {i}, 2024</td></tr><tr><td class=alt2><a class=bigusername>ann</a>\
         <div class=smallfont>Join Date: 2011</div></td></tr><tr><td class=alt1 id=td_post_{i}><div id=post_message_{i}>{text}</div>\
         <div>__________________<br>Life is short</div></td></tr></table>"
            )
        },
        "<div class=smallfont>Powered by vBulletin</div>",
    )
}

fn vbulletin4() -> String {
    thread(
        &format!("<span class=threadtitle><a href=x>{TITLE}</a></span>"),
        |i, text| {
            format!(
                "<li class=postbitlegacy id=post_{i}><div class=userinfo><a class=username>ann</a><dl><dt>Posts</dt><dd>20{i}</dd></dl></div>\
         <div class=postrow><h2 class='title icon'>Re: {TITLE}</h2><div class=content><div id=post_message_{i}>\
         <blockquote class='postcontent restore'>{text}</blockquote></div></div>\
         <blockquote class='signature restore'><div class=signaturecontainer>Life is short</div></blockquote></div></li>"
            )
        },
        "<div id=footer_copyright>Powered by vBulletin</div>",
    )
}

fn vbulletin5() -> String {
    thread(
        &format!("<h1 class=main-title>{TITLE}</h1>"),
        |i, text| {
            format!(
                "<li class='b-post js-post' data-node-id={i}><div class=b-userinfo>ann Posts: 20{i}</div><div class=b-post__body>\
         <div class='js-post__content-text restore h-wordwrap' itemprop=text>{text}</div>\
         <div class=b-post__footer>Life is short</div></div></li>"
            )
        },
        "<div>Powered by vBulletin</div>",
    )
}

fn xenforo1() -> String {
    thread(
        &format!("<div class=titleBar><h1>{TITLE}</h1></div>"),
        |i, text| {
            format!(
                "<li id=post-{i} class=message><div class=messageUserInfo><h3 class=userText>ann</h3></div><div class=messageInfo>\
         <div class=messageContent><article><blockquote class='messageText SelectQuoteContainer ugc baseHtml'>{text}</blockquote></article></div>\
         <div class='baseHtml signature messageText ugc'><aside>Life is short</aside></div>\
         <div class=messageMeta><a href=x>#{i}</a> <a>Like</a></div></div></li>"
            )
        },
        "<div id=copyright>Forum software by XenForo</div>",
    )
}

fn xenforo2() -> String {
    thread(
        &format!("<h1 class=p-title-value>{TITLE}</h1>"),
        |i, text| {
            format!(
                "<article class='message message--post js-post'><div class=message-user><h4 class=message-name>ann</h4>Messages 20{i}</div>\
         <div class='message-cell message-cell--main'><header class=message-attribution>May {i}, 2024 #{i}</header>\
         <article class='message-body js-selectToQuote'><div class=bbWrapper>{text}</div></article>\
         <aside class=message-signature><div class=bbWrapper>Life is short</div></aside></div></article>"
            )
        },
        "<a href=x>Community platform by XenForo</a>",
    )
}

fn stack_exchange() -> String {
    thread(
        &format!(
            "<div id=question-header><h1><a href=x class=question-hyperlink>{TITLE}</a></h1></div><div>Asked 3 years ago</div>"
        ),
        |i, text| {
            format!(
                "<div class='{}'><div class=post-layout><div class='votecell post-layout--left'>{i}7</div>\
         <div class='{} post-layout--right'><div class='s-prose js-post-body' itemprop=text><p>{text}</p></div>\
         <div>Improve this answer</div><div class=user-details>ann 1,02{i}</div></div>\
         <div class=post-layout--right><ul class=comments-list><li class='comment js-comment'><div class=comment-body>\
         <span class=comment-copy>{COMMENT}</span> <a class=comment-user>bob</a></div></li></ul></div></div></div>",
                if i == 1 { "question" } else { "answer" },
                if i == 1 { "postcell" } else { "answercell" }
            )
        },
        "<div id=sidebar><h4>Hot Network Questions</h4><ul><li><a class=question-hyperlink href=x>Another question</a></li></ul></div>",
    )
}

fn old_reddit() -> String {
    let post = |i: usize, kind: &str, text: &str, inside: &str| {
        format!(
            "<div class='thing id-t{i} {kind}' data-author=ann><div class='entry unvoted'><p class=tagline>ann {i} points</p>\
         <form class=usertext><div class='usertext-body may-blank-within md-container'><div class=md><p>{text}</p></div></div></form>\
         <ul class='flat-list buttons'><li>permalink</li><li>reply</li></ul></div><div class=child>{inside}</div></div>"
        )
    };
    let submission = post(1, "self link", FIRST, "").replace(
        "<p class=tagline>",
        &format!(
            "<p class=title><a class='title may-blank' href=x>{TITLE}</a></p><p class=tagline>"
        ),
    );
    let answers = post(2, "comment", SECOND, &post(3, "comment", THIRD, ""));
    page(&format!(
        "<div class=side><div class=titlebox><form class=usertext><div class=usertext-body><div class=md><p>Welcome to the garden. Be kind.</p>\
         </div></div></form></div></div><div class=content>{submission}<div class=commentarea>{answers}</div></div>"
    ))
}

fn hacker_news() -> String {
    let row = |text: &str| {
        format!(
            "<tr class='athing comtr'><td><table><tr><td class=ind><img></td><td class=votelinks></td><td class=default>\
         <div><span class=comhead><a class=hnuser>ann</a> <span class=age>3 hours ago</span></span></div>\
         <div class=comment><div class='commtext c00'>{text}</div><div class=reply><u><a href=x>reply</a></u></div></div>\
         </td></tr></table></td></tr>"
        )
    };
    page(&format!(
        "<table id=hnmain><tr><td><table><tr><td><a href=news>Hacker News</a> new | past | comments</td></tr></table></td></tr>\
         <tr><td><table class=fatitem><tr class=athing><td class=title></td><td class=title><span class=titleline><a href=x>{TITLE}</a></span></td></tr>\
         <tr><td></td><td class=subtext><span class=score>12 points</span> by ann</td></tr>\
         <tr><td></td><td><div class=toptext>{FIRST}</div></td></tr></table>\
         <table class=comment-tree>{}{}</table></td></tr></table>",
        row(SECOND),
        row(THIRD)
    ))
}

/// Engines with one element around a post and one around its text: name, title, the two elements, end of the post.
const SIMPLE: [[&str; 5]; 7] = [
    [
        "MyBB",
        "<h1>TITLE</h1>",
        "<div class='post classic'><div class=post_author>ann<br>Posts: 20</div><div class=post_content><span class=post_date>May 1</span>",
        "<div class='post_body scaleimages'>",
        "<div class='signature scaleimages'>Life is short</div></div></div>",
    ],
    [
        "SMF 2",
        "<h1>TITLE</h1>",
        "<div class=post_wrapper><div class=poster><h4>ann</h4>Posts: 20</div><div class=postarea><div class=keyinfo>Reply #1</div>",
        "<div class=post><div class=inner>",
        "</div></div><div class=moderatorbar><div class=signature>Life is short</div></div></div>",
    ],
    [
        "Flarum",
        "<h2 class=DiscussionHero-title>TITLE</h2>",
        "<article class='CommentPost Post'><header class=Post-header>ann, May 1</header>",
        "<div class=Post-body>",
        "<aside class=Post-actions><button>Reply</button></aside></article>",
    ],
    [
        "bbPress",
        "<h1 class=entry-title>TITLE</h1>",
        "<div class='post-1 reply type-reply status-publish'><div class=bbp-reply-author>ann<br>Participant</div>",
        "<div class=bbp-reply-content>",
        "</div>",
    ],
    [
        "FluxBB",
        "<h1>TITLE</h1>",
        "<div class='blockpost rowodd'><h2>May 1</h2><div class=postbody><div class=postleft>ann<br>Posts: 20</div><div class=postright>",
        "<div class=postmsg>",
        "<div class=postsignature>Life is short</div></div></div></div>",
    ],
    [
        "WoltLab",
        "<h1 class=contentTitle>TITLE</h1>",
        "<article class='wbbPost message'><aside class=messageSidebar>ann<br>Posts 20</aside><div class=messageBody>",
        "<div class=messageText>",
        "</div><footer class=messageFooter>Quote</footer></article>",
    ],
    [
        "issues of GitHub",
        "<h1 class=gh-header-title><span class=js-issue-title>TITLE</span> <span>#20</span></h1>",
        "<div class='timeline-comment comment'><h3>ann commented on May 1</h3>",
        "<div class='d-block comment-body markdown-body js-comment-body'>",
        "<div class=comment-reactions>2</div></div>",
    ],
];

#[test]
fn threads_of_engines_with_simple_posts_are_their_title_and_posts() {
    let want = [TITLE, FIRST, SECOND, THIRD].join("\n\n");
    for [engine, title, post, inside, end] in SIMPLE {
        let ends = "</div>".repeat(inside.matches("<div").count());
        let posts: String = [FIRST, SECOND, THIRD]
            .iter()
            .map(|text| format!("{post}{inside}<p>{text}</p>{ends}{end}"))
            .collect();
        let head = "<nav><a href=/>Board index</a></nav>".to_string();
        let body = format!(
            "{head}{}{posts}<footer>Powered by {engine}</footer>",
            title.replace("TITLE", TITLE)
        );
        let found = text(&page(&body), false);
        assert_eq!(found.replace(" #20", ""), want, "{engine}");
    }
}

#[test]
fn a_site_that_heads_its_pages_with_its_name_keeps_the_thread_s_title() {
    let post = |text: &str| {
        format!("<div class=blockpost><h2>May 1</h2><div class=postmsg><p>{text}</p></div></div>")
    };
    let body = format!(
        "<h1>Garden and pumps</h1><ul><li><a href=/>Index</a></li></ul><h3>{TITLE}</h3>{}{}",
        post(FIRST),
        post(SECOND)
    );
    assert_eq!(
        text(&page(&body), false),
        [TITLE, FIRST, SECOND].join("\n\n")
    );
}

#[test]
fn threads_of_every_engine_are_their_title_and_posts() {
    let want = [TITLE, FIRST, SECOND, THIRD].join("\n\n");
    for (engine, page) in [
        ("Discourse for crawlers", discourse()),
        ("Discourse", discourse_rendered()),
        ("phpBB 3", phpbb()),
        ("phpBB 2", phpbb2()),
        ("vBulletin 3", vbulletin3()),
        ("vBulletin 4", vbulletin4()),
        ("vBulletin 5", vbulletin5()),
        ("XenForo 1", xenforo1()),
        ("XenForo 2", xenforo2()),
        ("Stack Exchange", stack_exchange()),
        ("Reddit", old_reddit()),
        ("Hacker News", hacker_news()),
    ] {
        assert_eq!(text(&page, false), want, "{engine}");
    }
}

#[test]
fn comments_under_posts_follow_them_on_demand() {
    let found = text(&stack_exchange(), true);
    let want = [TITLE, FIRST, COMMENT, SECOND, COMMENT, THIRD, COMMENT].join("\n\n");
    assert_eq!(found, want);
}

#[test]
fn a_request_to_enable_scripts_is_no_text() {
    let sentence = "The river rose in spring, and the people who lived beside it moved their houses up the hill. ";
    let article = sentence.repeat(12);
    let request =
        "Please enable scripts in your browser, they are needed for this site. ".repeat(3);
    let body = format!(
        "<noscript><p>{request}</p></noscript><article><h1>On rivers</h1><p>{article}</p><p>{article}</p></article>"
    );
    let found = text(&page(&body), false);
    assert!(
        found.contains("moved their houses") && !found.contains("enable scripts"),
        "{found}"
    );
}

#[test]
fn words_of_engines_on_other_pages_change_nothing() {
    let sentence = "The river rose in spring, and the people who lived beside it moved their houses up the hill. ";
    let article: String = (0..6)
        .map(|i| format!("<p>In the year {i} it was so. {}</p>", sentence.repeat(3)))
        .collect();
    for class in [
        "content",
        "post",
        "postcontent",
        "md",
        "post-text",
        "cooked",
        "comment thing",
        "inner",
        "post_content scaleimages",
        "Post-body",
        "postmsg",
        "js-comment-body",
        "messageText",
    ] {
        let body = format!(
            "<article><h1>On rivers</h1><div class='{class}'><p>{sentence}</p></div><div>{article}</div></article>"
        );
        let found = text(&page(&body), false);
        for i in 0..6 {
            assert!(
                found.contains(&format!("In the year {i}")),
                "{class}\n{found}"
            );
        }
    }
}
