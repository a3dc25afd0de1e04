"""Templates of pages for extraction_pages.py, written after the public markup of the engines they are named for.

Each of TEMPLATES takes (language, title, pieces, menu, rng) and gives a page whose main text is the pieces; each of
FORUMS takes (language, title, posts, menu, rng), a post being a list of paragraphs. `menu` are short texts in the
page's language for links. All else on the pages is furniture.
"""
import html

SENTENCES = [
    "We use cookies to improve your experience on this site, to analyse traffic and to show you content that fits your interests.",
    "Sign up for our newsletter and get the latest news delivered to your inbox every week. You can unsubscribe at any time.",
    "Copyright 2019-2024 Example Media Ltd. All rights reserved. Reproduction without permission is prohibited.",
    "The views expressed here are those of the authors and do not necessarily reflect the views of the publisher.",
    "Found a mistake? Help us to make this page better by opening an issue or sending a pull request.",
    "You must be logged in to post a comment. New here? Create an account, it is free and takes less than a minute.",
    "This site is protected by reCAPTCHA and the privacy policy and terms of service apply.",
    "Enjoying this page? Consider supporting the project with a small donation, every contribution counts.",
]


def esc(text):
    return html.escape(text, quote=False)


def links(menu, rng, count, item="li", cls=""):
    """A list's items, each a link."""
    attribute = f' class="{cls}"' if cls else ""
    some = [rng.choice(menu) for _ in range(count)]
    return "".join(f'<{item}{attribute}><a href="/{i}">{esc(m)}</a></{item}>' for i, m in enumerate(some))


def said(rng, count=1):
    return rng.sample(SENTENCES, count)


def put(pieces, tag="p", cls="", table="", formula="div"):
    """The pieces as elements."""
    attribute = f' class="{cls}"' if cls else ""
    forms = {"p": (f"<{tag}{attribute}>", f"</{tag}>"), "table": (f'<table class="{table}">' if table else "<table>", "</table>"),
             "formula": (f"<{formula}>", f"</{formula}>")}
    out = []
    for p in pieces:
        start, end = forms.get(p.tag, (f"<{p.tag}>", f"</{p.tag}>"))
        out.append(start + p.markup + end)
    return "\n".join(out)


def shell(language, title, body, head="", attributes=""):
    return (f'<!DOCTYPE html>\n<html lang="{language}"><head><meta charset="utf-8"><title>{esc(title)}</title>{head}</head>\n'
            f"<body{attributes}>\n{body}\n</body></html>")


def plain(language, title, pieces, menu, rng):
    return shell(language, title, f"<h1>{esc(title)}</h1>\n{put(pieces)}")


def gutenberg(language, title, pieces, menu, rng):
    return shell(language, title, f'<section class="pg-boilerplate pgheader" id="pg-header"><h2>The eBook of {esc(title)}</h2><div>This ebook is for the use of anyone anywhere '
                 f'at no cost and with almost no restrictions whatsoever. You may copy it, give it away or re-use it under the terms of the license included.</div></section>\n'
                 f'<h1>{esc(title)}</h1><hr class="chap">\n{put(pieces)}\n<section class="pg-boilerplate pgheader" id="pg-footer"><div>Updated editions will replace the previous one, the '
                 f'old editions will be renamed. Creating the works from print editions not protected by copyright law means that no one owns a copyright in these works.</div></section>')


def old_table(language, title, pieces, menu, rng):
    rows = "".join(f'<tr><td><font face="Arial" size="1"><a href="{i}.htm">{esc(m)}</a></font></td></tr>' for i, m in enumerate(menu[:14]))
    body = "\n".join(f'<table border="1" cellpadding="2">{p.markup}</table>' if p.tag == "table" else
                     f'<h3><font face="Verdana">{p.markup}</font></h3>' if p.tag == "h2" else f'<p align="justify"><font face="Verdana" size="2">{p.markup}</font></p>' for p in pieces)
    return shell(language, title, f'<center><table width="760" border="0"><tr><td colspan="2" bgcolor="#336699"><font color="#ffffff" size="5">{esc(title)}</font></td></tr>'
                 f'<tr><td width="140" valign="top" bgcolor="#eeeeee"><table>{rows}</table></td><td valign="top">{body}</td></tr>'
                 f'<tr><td colspan="2" align="center"><font size="1">{esc(said(rng)[0])}<br>Last updated: 3 May 2003 | <a href="mailto:w@x.org">Webmaster</a> | Best viewed at 800x600</font></td></tr></table></center>', attributes=' bgcolor="#ffffff"')


def breaks(language, title, pieces, menu, rng):
    inner = "<br><br>\n".join(f"<table>{p.markup}</table>" if p.tag == "table" else f"<b>{p.markup}</b>" if p.tag == "h2" else p.markup for p in pieces)
    return shell(language, title, f'<div id="top"><a href="/">Home</a> | {" | ".join(f"<a href=x>{esc(m)}</a>" for m in menu[:6])}</div><div id="txt"><b>{esc(title)}</b><br><br>{inner}</div>'
                 f'<div id="bottom">{esc(said(rng)[0])}</div>')


def mdbook(language, title, pieces, menu, rng):
    return shell(language, title, f'<div id="body-container"><nav id="sidebar" class="sidebar" aria-label="Table of contents"><div class="sidebar-scrollbox"><ol class="chapter">'
                 f'{links(menu, rng, 30, cls="chapter-item expanded")}</ol></div></nav><div id="page-wrapper" class="page-wrapper"><div class="page"><div id="menu-bar" class="menu-bar sticky"><div class="left-buttons">'
                 f'<button id="sidebar-toggle">Toggle Table of Contents</button></div><h1 class="menu-title">{esc(title)}</h1></div><div id="content" class="content"><main><h1 id="t"><a class="header" href="#t">{esc(title)}</a></h1>\n{put(pieces)}'
                 f'</main><nav class="nav-wrapper" aria-label="Page navigation"><a rel="prev" href="a" class="mobile-nav-chapters previous">Previous</a><a rel="next" href="b">Next</a></nav></div></div></div></div>')


def sphinx(language, title, pieces, menu, rng):
    return shell(language, title, f'<div class="wy-grid-for-nav"><nav data-toggle="wy-nav-shift" class="wy-nav-side"><div class="wy-side-scroll"><div class="wy-side-nav-search"><a href="index.html" class="icon icon-home">Docs</a>'
                 f'<form><input type="text" placeholder="Search docs"></form></div><div class="wy-menu wy-menu-vertical"><p class="caption"><span class="caption-text">Contents:</span></p><ul>{links(menu, rng, 24, cls="toctree-l1")}</ul></div></div></nav>'
                 f'<section class="wy-nav-content-wrap"><div class="wy-nav-content"><div class="rst-content"><div role="navigation" aria-label="Page navigation"><ul class="wy-breadcrumbs"><li><a href="i">Home</a></li><li class="breadcrumb-item active">{esc(title)}</li></ul><hr></div>'
                 f'<div role="main" class="document" itemscope="itemscope" itemtype="http://schema.org/Article"><div itemprop="articleBody"><section id="s"><h1>{esc(title)}<a class="headerlink" href="#s" title="Permalink">\u00b6</a></h1>\n'
                 f'{put(pieces, table="docutils align-default", formula="div class=math")}</section></div></div><footer><div class="rst-footer-buttons"><a href="p" class="btn btn-neutral">Previous</a></div><hr><div role="contentinfo"><p>\u00a9 Copyright 2021, Example Developers.</p></div>'
                 f'Built with <a href="s">Sphinx</a> using a <a href="r">theme</a> provided by Read the Docs.</footer></div></div></section></div>')


def docusaurus(language, title, pieces, menu, rng):
    return shell(language, title, f'<div id="__docusaurus"><nav class="navbar navbar--fixed-top"><div class="navbar__inner">{links(menu, rng, 6, "div", "navbar__item")}</div></nav><div class="main-wrapper"><aside class="theme-doc-sidebar-container"><nav class="menu thin-scrollbar">'
                 f'<ul class="theme-doc-sidebar-menu menu__list">{links(menu, rng, 20, cls="theme-doc-sidebar-item-link menu__list-item")}</ul></nav></aside><main class="docMainContainer_x"><div class="container"><div class="row"><div class="col docItemCol_y"><article>'
                 f'<nav class="theme-doc-breadcrumbs"><ul class="breadcrumbs"><li class="breadcrumbs__item"><a href="/">Home</a></li></ul></nav><div class="theme-doc-markdown markdown"><header><h1>{esc(title)}</h1></header>{put(pieces)}</div>'
                 f'<footer class="theme-doc-footer"><a href="e" class="theme-edit-this-page">Edit this page</a><span class="theme-last-updated">Last updated on <b>May 3, 2023</b></span></footer></article><nav class="pagination-nav">'
                 f'<a class="pagination-nav__link" href="a"><div class="pagination-nav__sublabel">Previous</div></a></nav></div><div class="col col--3"><div class="tableOfContents_z"><ul class="table-of-contents">{links(menu, rng, 8)}</ul></div></div></div></div></main></div>'
                 f'<footer class="footer footer--dark"><div class="footer__copyright">{esc(said(rng)[0])}</div></footer></div>')


def mediawiki(language, title, pieces, menu, rng):
    return shell(language, title, f'<div id="mw-page-base"></div><div id="content" class="mw-body" role="main"><h1 id="firstHeading" class="firstHeading">{esc(title)}</h1><div id="bodyContent" class="vector-body"><div id="siteSub">From the free encyclopedia</div>'
                 f'<a class="mw-jump-link" href="#n">Jump to navigation</a><div id="mw-content-text" class="mw-body-content"><div class="mw-parser-output">{put(pieces, table="wikitable sortable", formula="dl")}'
                 f'<div role="navigation" class="navbox"><table class="nowraplinks navbox-inner"><tr><th class="navbox-title">{esc(menu[0])}</th></tr><tr><td class="navbox-list">{links(menu, rng, 16, "span")}</td></tr></table></div></div>'
                 f'<div class="printfooter">Retrieved from "<a href="u">https://wiki.example/index.php?title=x</a>"</div></div><div id="catlinks" class="catlinks"><a href="c">Categories</a>: <ul>{links(menu, rng, 5)}</ul></div></div></div>'
                 f'<div id="mw-navigation"><h2>Navigation menu</h2><div id="p-personal" class="vector-menu"><ul>{links(["Talk", "Contributions", "Create account", "Log in"], rng, 4, cls="mw-list-item")}</ul></div><nav id="p-tb"><h3>Tools</h3><ul>{links(menu, rng, 9)}</ul></nav></div>'
                 f'<footer id="footer" class="mw-footer"><ul id="footer-info"><li>This page was last edited on 3 May 2023, at 10:02.</li><li>Text is available under the Creative Commons Attribution-ShareAlike License; additional terms may apply.</li></ul></footer>', attributes=' class="mediawiki ltr sitedir-ltr ns-0 skin-vector"')


def latexml(language, title, pieces, menu, rng):
    inner = "\n".join(f'<table class="ltx_tabular ltx_align_middle">{p.markup}</table>' if p.tag == "table" else f'<h2 class="ltx_title ltx_title_section">{p.markup}</h2>' if p.tag == "h2" else
                      f'<table class="ltx_equation ltx_eqn_table"><tbody><tr class="ltx_eqn_row"><td class="ltx_eqn_cell ltx_align_center">{p.markup}</td></tr></tbody></table>' if p.tag == "formula" else
                      f'<div class="ltx_para"><p class="ltx_p">{p.markup}</p></div>' for p in pieces)
    return shell(language, title, f'<nav class="ltx_page_navbar"><nav class="ltx_TOC"><ol class="ltx_toclist">{links(menu, rng, 12, cls="ltx_tocentry")}</ol></nav></nav><div class="ltx_page_main"><div class="ltx_page_content"><article class="ltx_document"><h1 class="ltx_title ltx_title_document">{esc(title)}</h1>'
                 f'<section class="ltx_section">{inner}</section></article></div><footer class="ltx_page_footer"><div class="ltx_page_logo">Generated on Wed May 3 10:02:31 2023 by <a href="l">LaTeXML</a></div></footer></div>')


def wordpress(language, title, pieces, menu, rng):
    comments = "".join(f'<li class="comment even thread-even depth-1"><article class="comment-body"><footer class="comment-meta"><b class="fn">{esc(rng.choice(menu))}</b> says: <time>May 3, 2023 at 10:02 am</time></footer><div class="comment-content"><p>{esc(s)}</p></div><div class="reply"><a href="r">Reply</a></div></article></li>' for s in said(rng, 3))
    return shell(language, title, f'<div id="page" class="hfeed site"><header id="masthead" class="site-header"><p class="site-title"><a href="/">{esc(menu[0])}</a></p><nav id="site-navigation" class="main-navigation"><ul id="menu-primary" class="menu">{links(menu, rng, 7, cls="menu-item menu-item-type-post_type")}</ul></nav></header>'
                 f'<div id="content" class="site-content"><div id="primary" class="content-area"><main id="main" class="site-main"><article id="post-12" class="post-12 post type-post status-publish format-standard hentry"><header class="entry-header"><h1 class="entry-title">{esc(title)}</h1><div class="entry-meta">Posted on <time class="entry-date">May 3, 2023</time> by <span class="author vcard">admin</span></div></header>'
                 f'<div class="entry-content">{put(pieces, table="wp-block-table", formula="p")}<div class="sharedaddy sd-sharing-enabled"><h3 class="sd-title">Share this:</h3><ul>{links(["Twitter", "Facebook", "Email"], rng, 3)}</ul></div></div><footer class="entry-footer"><span class="cat-links">Categories: {links(menu, rng, 2, "span")}</span></footer></article>'
                 f'<nav class="navigation post-navigation"><div class="nav-previous"><a href="p">{esc(menu[1])}</a></div></nav><div id="comments" class="comments-area"><h2 class="comments-title">3 thoughts on this post</h2><ol class="comment-list">{comments}</ol><div id="respond"><h3>Leave a Reply</h3><p class="comment-notes">Your email address will not be published. Required fields are marked *</p></div></div></main></div>'
                 f'<aside id="secondary" class="widget-area"><section class="widget widget_search"><form><input value="Search"></form></section><section class="widget widget_recent_entries"><h2 class="widget-title">Recent Posts</h2><ul>{links(menu, rng, 6)}</ul></section><section class="widget widget_text"><p>{esc(said(rng)[0])}</p></section></aside></div><footer id="colophon" class="site-footer"><div class="site-info">Proudly powered by WordPress</div></footer></div>', attributes=' class="single single-post"')


def blogger(language, title, pieces, menu, rng):
    inner = "\n".join(f"<table>{p.markup}</table>" if p.tag == "table" else f"<h3>{p.markup}</h3>" if p.tag == "h2" else f'<div style="text-align: justify;"><span style="font-size: small;">{p.markup}</span></div><br>' for p in pieces)
    return shell(language, title, f'<div class="content-outer"><div class="header section" id="header"><h1 class="title">{esc(menu[0])}</h1><p class="description"><span>{esc(said(rng)[0])}</span></p></div><div class="main-outer"><div class="column-center-outer"><div class="main section" id="main"><div class="widget Blog"><div class="blog-posts hfeed"><div class="date-outer">'
                 f'<h2 class="date-header"><span>Wednesday, May 3, 2023</span></h2><div class="post hentry"><h3 class="post-title entry-title">{esc(title)}</h3><div class="post-body entry-content" id="post-body-1">{inner}</div><div class="post-footer"><span class="post-author vcard">Posted by <span class="fn">Ann</span></span> <span class="post-labels">Labels: {links(menu, rng, 3, "span")}</span></div></div></div></div>'
                 f'<div class="comments" id="comments"><h4>2 comments:</h4><dl id="comments-block"><dd class="comment-body"><p>{esc(said(rng)[0])}</p></dd></dl></div></div></div></div><div class="column-right-outer"><div class="sidebar section"><div class="widget BlogArchive"><h2>Blog Archive</h2><ul class="hierarchy">{links(menu, rng, 15)}</ul></div></div></div></div></div>')


def hugo(language, title, pieces, menu, rng):
    return shell(language, title, f'<header class="header"><nav class="nav"><div class="logo"><a href="/">{esc(menu[0])}</a></div><ul id="menu">{links(menu, rng, 5)}</ul></nav></header><main class="main"><article class="post-single"><header class="post-header"><h1 class="post-title">{esc(title)}</h1><div class="post-meta">May 3, 2023 &middot; 12 min &middot; Ann</div></header>'
                 f'<div class="toc"><details><summary><span class="details">Table of Contents</span></summary><div class="inner"><ul>{links(menu, rng, 5)}</ul></div></details></div><div class="post-content">{put(pieces)}</div><footer class="post-footer"><ul class="post-tags">{links(menu, rng, 3)}</ul><nav class="paginav"><a class="next" href="n"><span class="title">Next</span><br><span>{esc(menu[2])}</span></a></nav></footer></article></main>'
                 f'<footer class="footer"><span>&copy; 2023 {esc(menu[0])}</span> <span>Powered by <a href="h">Hugo</a></span></footer>', attributes=' class="list" id="top"')


def pandoc(language, title, pieces, menu, rng):
    return shell(language, title, f'<header id="title-block-header"><h1 class="title">{esc(title)}</h1><p class="author">Ann Other</p><p class="date">May 2023</p></header><nav id="TOC" role="doc-toc"><ul>{links(menu, rng, 9)}</ul></nav>{put(pieces)}')


def legal(language, title, pieces, menu, rng):
    inner = "\n".join(f'<table class="tbl">{p.markup}</table>' if p.tag == "table" else f'<div class="LegClauseHeading"><strong>{p.markup}</strong></div>' if p.tag == "h2" else f'<div class="LegClause"><span class="LegText">{p.markup}</span></div>' for p in pieces)
    return shell(language, title, f'<div id="layout1"><div id="siteLinks"><ul>{links(menu, rng, 6)}</ul></div><div id="breadCrumb"><h3 class="accessibleText">You are here:</h3><ul>{links(menu, rng, 3)}</ul></div><div id="layout2"><div id="tools"><h2>What Version</h2><ul>{links(menu, rng, 4)}</ul><h2>Advanced Features</h2><p>{esc(said(rng)[0])}</p></div>'
                 f'<div id="content"><h1 class="pageTitle">{esc(title)}</h1><div class="LegSnippet">{inner}</div></div></div><div id="footer"><p>{esc(said(rng)[0])}</p></div></div>')


def portal(language, title, pieces, menu, rng):
    cards = "".join(f'<div class="card teaser"><a href="/{i}"><h4>{esc(m)}</h4><p>{esc(s)}</p></a></div>' for i, (m, s) in enumerate(zip(menu[10:15], said(rng, 5))))
    return shell(language, title, f'<div class="cookie-banner" role="dialog"><p>{esc(SENTENCES[0])}</p><button>Accept all</button><button>Settings</button></div><header><div class="top-bar">{links(menu, rng, 9, "span")}</div></header><div class="layout"><main><div class="story"><div class="story__head"><h1>{esc(title)}</h1><div class="story__byline">By <a href=a>Ann Other</a>, 3 May 2023, updated 10:02</div>'
                 f'<div class="share">{links(["Share", "Tweet", "Mail", "Print"], rng, 4, "span")}</div></div><div class="story__body">{put(pieces, cls="story__paragraph")}</div><div class="story__tags">{links(menu, rng, 4, "span")}</div></div><section class="more"><h2>More from this section</h2>{cards}</section></main>'
                 f'<aside><div class="newsletter"><h3>Newsletter</h3><p>{esc(SENTENCES[1])}</p></div><ol class="most-read">{links(menu, rng, 10)}</ol></aside></div><footer>{links(menu, rng, 12, "span")}<p>{esc(SENTENCES[2])}</p></footer>')


def gitbook(language, title, pieces, menu, rng):
    return shell(language, title, f'<div class="book"><div class="book-summary"><nav role="navigation"><ul class="summary">{links(menu, rng, 25, cls="chapter")}<li class="divider"></li><li><a href="g" class="gitbook-link">Published with GitBook</a></li></ul></nav></div><div class="book-body"><div class="body-inner"><div class="book-header" role="navigation"><h1><i class="fa"></i><a href=".">{esc(title)}</a></h1></div>'
                 f'<div class="page-wrapper" tabindex="-1" role="main"><div class="page-inner"><section class="normal markdown-section"><h1 id="t">{esc(title)}</h1>{put(pieces)}</section></div></div></div><a href="n" class="navigation navigation-next" aria-label="Next page"><i class="fa fa-angle-right"></i></a></div></div>')


TEMPLATES = {f.__name__.replace("_", "-"): f for f in (plain, gutenberg, old_table, breaks, mdbook, sphinx, docusaurus, mediawiki, latexml, wordpress, blogger, hugo, pandoc, legal, portal, gitbook)}


class Forum:
    """A forum's page: head, a post as a format with {name} {date} {n} {text}, tail. `par` writes a post's paragraphs."""

    def __init__(self, head, post, tail, par="p"):
        self.head, self.post, self.tail, self.par = head, post, tail, par

    def __call__(self, language, title, posts, menu, rng):
        rows = []
        for n, post in enumerate(posts):
            text = "".join(f"<p>{esc(p)}</p>" for p in post) if self.par == "p" else "<br><br>".join(esc(p) for p in post)
            values = {"name": esc(rng.choice(menu)), "date": f"May {n % 28 + 1}, 2021, {n % 12 + 1}:0{n % 10} PM", "n": str(n + 1), "text": text,
                      "count": str(rng.randrange(1, 9000)), "signature": esc(rng.choice(SENTENCES))}
            row = self.post
            for key, value in values.items():
                row = row.replace("{" + key + "}", value)
            rows.append(row)
        fill = {"title": esc(title), "nav": links(menu, rng, 8), "related": links(menu, rng, 7), "said": esc(rng.choice(SENTENCES))}
        head, tail = self.head, self.tail
        for key, value in fill.items():
            head, tail = head.replace("{" + key + "}", value), tail.replace("{" + key + "}", value)
        return shell(language, title + " - Forum", head + "\n".join(rows) + tail)


NAV, FOOT = '<div id="header"><a href="/">Board index</a><ul class="nav">{nav}</ul></div>', '<div id="footer"><p>{said}</p></div>'
FORUMS = {
    "smf": Forum(NAV + '<div id="forumposts"><div class="cat_bar"><h3 class="catbg">Author <span id="top_subject">Topic: {title} (Read 1234 times)</span></h3></div>',
                 '<div class="windowbg"><div class="post_wrapper"><div class="poster"><h4><a href="u">{name}</a></h4><ul class="reset smalltext"><li class="membergroup">Full Member</li><li class="postcount">Posts: {count}</li></ul></div><div class="postarea"><div class="flow_hidden"><div class="keyinfo"><h5 id="subject_{n}"><a href="s">Re: topic</a></h5><div class="smalltext">&#171; <strong>Reply #{n} on:</strong> {date} &#187;</div></div></div><div class="post"><div class="inner" id="msg_{n}">{text}</div></div></div><div class="moderatorbar"><div class="smalltext reportlinks">Logged</div><div class="signature">{signature}</div></div></div></div>',
                 "</div>" + FOOT + '<div id="footer_section"><ul><li>SMF 2.0.15, Simple Machines</li></ul></div>', "br"),
    "mybb": Forum(NAV + '<table class="tborder"><tr><td class="thead"><strong>{title}</strong></td></tr></table><div id="posts">',
                  '<div class="post classic" id="post_{n}"><div class="post_author"><div class="author_information"><strong><span class="largetext"><a href="u">{name}</a></span></strong><br><span class="smalltext">Junior Member</span></div><div class="author_statistics">Posts: {count}<br>Threads: 4<br>Joined: May 2015<br>Reputation: 0</div></div><div class="post_content"><div class="post_head"><span class="post_date">{date}</span></div><div class="post_body scaleimages" id="pid_{n}">{text}</div><div class="signature scaleimages">{signature}</div></div><div class="post_controls"><a href="r" class="postbit_quote">Reply</a></div></div>',
                  "</div><div id='copyright'>Powered By MyBB</div>" + FOOT, "br"),
    "invision": Forum(NAV + '<div class="ipsPageHeader"><h1 class="ipsType_pageTitle">{title}</h1></div><div id="comments" class="cTopic">',
                      '<article id="elComment_{n}" class="cPost ipsBox ipsComment"><aside class="ipsComment_author cAuthorPane"><h3 class="cAuthorPane_author"><a href="u">{name}</a></h3><ul class="cAuthorPane_info"><li>Members</li><li>{count} posts</li></ul></aside><div class="ipsColumn"><div class="ipsComment_meta"><p class="ipsType_reset">Posted <time>{date}</time></p></div><div class="cPost_contentWrap"><div data-role="commentContent" class="ipsType_normal ipsType_richText ipsContained">{text}</div><div class="ipsItemControls"><ul class="ipsComment_controls"><li>Quote</li></ul></div></div></div></article>',
                      '</div><div class="ipsBox"><h2 class="ipsType_sectionTitle">Recently Browsing</h2><p>No registered users viewing this page.</p></div><h3>Recommended Posts</h3><ul>{related}</ul>' + FOOT),
    "vanilla": Forum(NAV + '<div class="PageTitle"><h1>{title}</h1></div><ul class="MessageList DataList Comments">',
                     '<li class="Item ItemComment" id="Comment_{n}"><div class="Comment"><div class="Item-Header CommentHeader"><span class="Author"><a href="u" class="Username">{name}</a></span> <span class="MItem DateCreated"><time>{date}</time></span></div><div class="Item-BodyWrap"><div class="Item-Body"><div class="Message userContent">{text}</div><div class="Reactions"></div></div></div></div></li>',
                     '</ul><div class="Foot Closed"><div class="Note Closed SignInOrRegister"><a href="l">Sign In</a> or <a href="r">Register</a> to comment.</div></div>' + FOOT),
    "nodebb": Forum(NAV + '<h1 component="post/header" class="topic-title">{title}</h1><ul component="topic" class="posts timeline">',
                    '<li component="post" class="posts-row" data-index="{n}"><div class="clearfix post-header"><strong><a href="u">{name}</a></strong> <span class="timeago">{date}</span></div><div class="content" component="post/content" itemprop="text">{text}</div><div class="post-footer"><a component="post/reply">Reply</a> <a component="post/quote">Quote</a> <span component="post/vote-count">{count}</span></div></li>',
                    '</ul><div class="pagination-block">1 out of 9</div><h5>Suggested Topics</h5><ul>{related}</ul>' + FOOT),
    "flarum": Forum(NAV + '<div class="DiscussionPage"><header class="Hero"><h2 class="DiscussionHero-title">{title}</h2></header><div class="PostStream">',
                    '<div class="PostStream-item"><article class="CommentPost Post"><header class="Post-header"><ul><li class="item-user"><h3><a href="u"><span class="username">{name}</span></a></h3></li><li class="item-meta"><time>{date}</time></li></ul></header><div class="Post-body">{text}</div><aside class="Post-actions"><ul><li><button>Reply</button></li><li><button>Like</button></li></ul></aside></article></div>',
                    "</div></div>" + FOOT),
    "bbpress": Forum(NAV + '<header class="page-header"><h1 class="entry-title">{title}</h1></header><ul class="forums bbp-replies"><li class="bbp-header"><div class="bbp-reply-author">Author</div><div class="bbp-reply-content">Posts</div></li><li class="bbp-body">',
                     '<div class="bbp-reply-header"><div class="bbp-meta"><span class="bbp-reply-post-date">{date}</span><a href="#{n}" class="bbp-reply-permalink">#{n}</a></div></div><div class="type-reply status-publish hentry"><div class="bbp-reply-author"><a href="u" class="bbp-author-name">{name}</a><div class="bbp-author-role">Participant</div></div><div class="bbp-reply-content">{text}</div></div>',
                     '</li></ul><div class="bbp-template-notice"><p>You must be logged in to reply to this topic.</p></div>' + FOOT),
    "punbb": Forum(NAV + '<div class="linkst"><h1><span>{title}</span></h1></div>',
                   '<div id="p{n}" class="blockpost rowodd"><h2><span><span class="conr">#{n}</span> <a href="x">{date}</a></span></h2><div class="box"><div class="inbox"><div class="postbody"><div class="postleft"><dl><dt><strong>{name}</strong></dt><dd class="usertitle">Member</dd><dd>Posts: {count}</dd></dl></div><div class="postright"><h3>Re: topic</h3><div class="postmsg">{text}</div></div></div></div><div class="postfootleft"><p>Offline</p></div></div></div>',
                   '<div id="brdfooter"><p>Powered by FluxBB</p></div>' + FOOT),
    "woltlab": Forum(NAV + '<header class="contentHeader"><h1 class="contentTitle">{title}</h1></header><ul class="wbbThreadPostList messageList">',
                     '<li id="post{n}"><article class="wbbPost message messageSidebarOrientationLeft"><aside class="messageSidebar member"><div class="messageAuthor"><a href="u" class="username">{name}</a></div><div class="userCredits"><dl><dt>Posts</dt><dd>{count}</dd></dl></div></aside><div class="messageContent"><header class="messageHeader"><ul><li>{date}</li><li><a href="#{n}">#{n}</a></li></ul></header><div class="messageBody"><div class="messageText">{text}</div></div><footer class="messageFooter"><ul class="messageFooterButtons"><li>Quote</li></ul></footer></div></article></li>',
                     "</ul>" + FOOT),
    "drupal": Forum(NAV + '<h1 class="title" id="page-title">{title}</h1><div id="forum-comments">',
                    '<div id="post-{n}" class="forum-post clearfix"><div class="forum-post-info clearfix"><div class="forum-posted-on">{date}</div><span class="forum-post-number">#{n}</span></div><div class="forum-post-wrapper"><div class="forum-post-panel-sub"><div class="author-pane"><div class="author-name">{name}</div><div class="author-posts">Posts: {count}</div></div></div><div class="forum-post-panel-main"><div class="forum-post-content"><div class="field field-name-comment-body"><div class="field-item even">{text}</div></div></div></div></div><div class="forum-post-footer"><ul class="links inline"><li>Log in or register to post comments</li></ul></div></div>',
                    "</div>" + FOOT),
    "github": Forum(NAV + '<div id="partial-discussion-header"><h1 class="gh-header-title"><span class="js-issue-title">{title}</span> <span>#1234</span></h1></div><div class="js-discussion">',
                    '<div class="js-timeline-item TimelineItem" id="issuecomment-{n}"><div class="timeline-comment-group"><div class="timeline-comment comment"><div class="timeline-comment-header"><h3><a class="author" href="u">{name}</a> commented <relative-time>{date}</relative-time></h3></div><div class="edit-comment-hide"><table><tbody><tr><td class="d-block comment-body markdown-body js-comment-body">{text}</td></tr></tbody></table><div class="comment-reactions"></div></div></div></div></div>',
                    '</div><div class="signed-out-comment"><a href="s">Sign up for free</a> to join this conversation. Already have an account? <a href="l">Sign in to comment</a></div><div class="Layout-sidebar"><div class="discussion-sidebar-heading">Assignees</div><p>No one assigned</p><div>Labels</div><ul>{related}</ul></div>' + FOOT),
    "lemmy": Forum(NAV + '<div class="post-listing"><h1 class="h4"><a href="p">{title}</a></h1></div><ul class="comments">',
                   '<li class="comment"><article class="comment-node py-2"><div class="d-flex text-muted small"><a class="person-listing" href="u">{name}</a><span class="unselectable pointer ms-auto">{count} points</span> <span class="moment-time">{date}</span></div><div class="comment-content"><div class="md-div">{text}</div></div><div class="comment-bottom-btns"><button>reply</button></div></article></li>',
                   '</ul><aside class="d-none d-md-block col-md-4"><div class="card"><ul>{related}</ul><p>{said}</p></div></aside>' + FOOT),
    "board-table": Forum(NAV + '<table width="100%"><tr><td class="catbg">{title}</td></tr></table>',
                         '<table width="100%" cellspacing="1" class="bordercolor"><tr><td class="windowbg" width="15%" valign="top"><b>{name}</b><br><small>Posts: {count}</small></td><td class="windowbg" valign="top"><table width="100%"><tr><td><small>{date}</small></td></tr></table><hr><div style="overflow: auto;">{text}</div></td></tr></table>',
                         "<center><small>{said}</small></center>", "br"),
    "question-list": Forum(NAV + '<div class="question-page"><h1 class="question-title">{title}</h1><div class="answers">',
                           '<div class="answer-item" itemprop="suggestedAnswer"><div class="vote-box"><span>{count}</span></div><div class="answer-main"><div class="answer-text" itemprop="text">{text}</div><div class="answer-meta">answered <time>{date}</time> by <a href="u">{name}</a></div><div class="answer-actions"><a>share</a> <a>flag</a></div></div></div>',
                           '</div></div><div class="related-questions"><h3>Related questions</h3><ul>{related}</ul></div>' + FOOT),
    "phpbb3": Forum(NAV + '<h2 class="topic-title"><a href="t">{title}</a></h2>',
                    '<div id="p{n}" class="post has-profile bg2"><div class="inner"><dl class="postprofile"><dt>{name}</dt><dd class="profile-posts"><strong>Posts:</strong> {count}</dd></dl><div class="postbody"><div id="post_content{n}"><h3><a href="#">Re: topic</a></h3><p class="author">by {name} &raquo; {date}</p><div class="content">{text}</div><div class="signature">{signature}</div></div></div></div></div>',
                    '<div class="copyright">Powered by phpBB</div>' + FOOT, "br"),
    "xenforo2": Forum(NAV + '<div class="p-title"><h1 class="p-title-value">{title}</h1></div><div class="block-body js-replyNewMessageContainer">',
                      '<article class="message message--post" id="js-post-{n}"><div class="message-inner"><div class="message-cell message-cell--user"><section class="message-user"><h4 class="message-name">{name}</h4><h5 class="userTitle">Member</h5></section></div><div class="message-cell message-cell--main"><header class="message-attribution">{date} #{n}</header><div class="message-userContent"><article class="message-body js-selectToQuote"><div class="bbWrapper">{text}</div></article></div><aside class="message-signature"><div class="bbWrapper">{signature}</div></aside></div></div></article>',
                      '</div><h3 class="block-minorHeader">Similar threads</h3><ul>{related}</ul>' + FOOT, "br"),
    "discourse": Forum(NAV + '<div id="topic-title"><h1><a href="t" class="fancy-title">{title}</a></h1></div><div id="main-outlet">',
                       '<div id="post_{n}" class="topic-body crawler-post"><div class="crawler-post-meta"><span class="creator"><a href="u">{name}</a></span> <time>{date}</time></div><div class="post" itemprop="text">{text}</div><div class="crawler-post-likes">{count} Likes</div></div>',
                       '<h3>Related topics</h3><ul>{related}</ul></div>' + FOOT),
}
