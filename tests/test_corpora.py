"""The claims of src/texts/corpora.py; nothing here leaves this machine."""

import ast
import contextlib
import hashlib
import inspect
import itertools
import json
import math
import textwrap
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from src.gpt.data_quality import (
    NearDuplicate,
    candidate_probability,
    jaccard,
    near_duplicates,
    remove_near_duplicates,
)
from src.texts import corpora
from src.texts.corpora import Corpus, Document, deduplicate, load, split, word_ngrams, words

GOOD = b"To be, or not to be, that is the question.\n\n" * 2_003  # more than one chunk
SHA256 = hashlib.sha256(GOOD).hexdigest()

calmly = settings(deadline=None)  # a busy machine is no counter-example

# Few letters and many newlines, so that equal paragraphs and odd blank lines are common.
ragged_texts = st.text(alphabet="ab \n\r\té", max_size=40)
documents_lists = st.lists(
    st.builds(Document, title=st.text("abc", min_size=1, max_size=2), text=ragged_texts), max_size=7
)
corpora_to_split = st.dictionaries(
    st.text("xyzé", max_size=5), st.text("a—", min_size=1, max_size=30), min_size=1, max_size=23
).map(lambda pairs: Corpus("drawn", tuple(Document(*pair) for pair in pairs.items())))


def texts_of(documents):
    return [document.text for document in documents]


def titles_of(documents):
    return [document.title for document in documents]


# --- deduplicate ---


def test_only_the_first_occurrence_of_a_paragraph_is_kept():
    """`one` recurs indented in the first text and between odd blank lines in the second."""
    first = Document("first", "one\n\ntwo\nlines\n\n  one  ")
    second = Document("second", "three\r\n \t\r\none\n\n\n\n  four")
    third = Document("third", "two\nlines\n\nfour\n")
    assert deduplicate([first, second, third]) == (
        Document("first", "one\n\ntwo\nlines"),
        Document("second", "three\n\n  four"),
    )


def test_a_stray_carriage_return_belongs_to_the_line_end():
    """Left on the paragraph, it would vanish only when the result is de-duplicated again."""
    assert texts_of(deduplicate([Document("a", "one\r\r\n\ntwo")])) == ["one\n\ntwo"]


def test_a_run_of_carriage_returns_is_read_once():
    """Where a match can begin inside a run, one that fails is tried again at each place of it."""
    text, break_at = "one\r\r\r\n\ntwo", corpora._BLANK_LINES.match
    assert [place for place in range(len(text)) if break_at(text, place)] == [3]


def deduplicated_line_by_line(documents):
    """The slow oracle: collect lines until a blank one, compare with a list of all before."""
    before, result = [], []
    for document in documents:
        paragraphs, lines = [], []
        for line in [*document.text.split("\n"), ""]:
            if line.strip():
                lines.append(line)
                continue
            paragraph = "\n".join(lines).strip()
            if paragraph and paragraph not in before:
                before.append(paragraph)
                paragraphs.append(paragraph)
            lines = []
        if paragraphs:
            result.append((document.title, paragraphs))
    return result


@calmly
@given(documents_lists)
def test_deduplication_agrees_with_a_loop_over_lines_and_twice_changes_nothing(documents):
    once = deduplicate(documents)
    got = [(d.title, [part.strip() for part in d.text.split("\n\n")]) for d in once]
    assert got == deduplicated_line_by_line(documents)
    assert deduplicate(once) == once


# --- words ---


def test_words_are_lower_cased_runs_of_letters_and_digits():
    assert words("It's a_B -- ÉTÉ 3.14!") == ["it", "s", "a", "b", "été", "3", "14"]
    assert words("... \n_") == []
    assert words("cafe\u0301") == words("caf\u00e9") == ["café"]


def test_a_document_of_exactly_n_words_has_one_ngram():
    assert word_ngrams("a b c", 3) == ["a b c"]
    assert word_ngrams("a b", 3) == []
    assert len(word_ngrams(" ".join("abcdefghij"))) == 3
    with pytest.raises(ValueError, match="got n=0"):
        word_ngrams("a", 0)


# --- near-duplicates ---


def numbered(start, stop):
    return Document(f"{start}-{stop}", " ".join(f"w{i}" for i in range(start, stop)))


def test_jaccard_by_hand():
    assert jaccard("ab", "") == 0.0


def test_near_duplicates_are_those_that_comparing_all_pairs_finds():
    """Stretches of one long text: 5-grams i…i+4 in common, so all similarities occur."""
    documents = [numbered(start, start + 60) for start in (0, 3, 7, 40, 41, 300, 0, 360, 370)]
    sets = [set(word_ngrams(document.text, 5)) for document in documents]
    everything = [
        NearDuplicate(i, j, jaccard(sets[i], sets[j])) for j in range(len(sets)) for i in range(j)
    ]
    for threshold in (0.6, 0.8, 1.0):
        expected = [pair for pair in everything if pair.similarity >= threshold]
        assert expected
        assert near_duplicates(documents, threshold=threshold) == expected


def test_a_pair_meets_as_often_as_the_s_curve_says():
    """2 bands of 3 at similarity 1/2: 1 - (1 - 1/8)^2 = 0.234, over 400 hash functions."""
    documents = [Document("a", "1 2 3"), Document("b", "1 2 3 4 5 6")]  # 3 of 6 words
    found = [
        bool(near_duplicates(documents, threshold=0.1, n=1, bands=2, rows=3, seed=seed))
        for seed in range(400)
    ]
    chance = candidate_probability(0.5, bands=2, rows=3)
    assert abs(sum(found) / 400 - chance) < 4 * (chance * (1 - chance) / 400) ** 0.5


@pytest.mark.parametrize(
    ("call", "options", "words"),
    [
        (candidate_probability, {"similarity": -0.1, "bands": 2, "rows": 2}, "from 0 to 1"),
        (candidate_probability, {"similarity": 1.1, "bands": 2, "rows": 2}, "from 0 to 1"),
        (near_duplicates, {"documents": [], "threshold": 0}, "above 0 and at most 1"),
        (near_duplicates, {"documents": [], "threshold": 1.5}, "above 0 and at most 1"),
    ],
)
def test_what_is_no_similarity_is_refused(call, options, words):
    with pytest.raises(ValueError, match=words):
        call(**options)


def test_documents_without_shingles_are_left_alone():
    documents = [Document("a", "too short"), Document("b", "too short"), Document("c", "")]
    assert near_duplicates(documents) == []
    assert remove_near_duplicates(documents, []) == tuple(documents)


def test_of_near_duplicates_the_first_stays_and_what_is_like_a_removed_one_stays_too():
    """The first is near the second, and that near the third, but the first not near the third."""
    documents = [numbered(0, 60), numbered(5, 65), numbered(10, 70), numbered(500, 560)]
    pairs = near_duplicates(documents, threshold=0.75)
    assert [(pair.earlier, pair.later) for pair in pairs] == [(0, 1), (1, 2)]
    kept = (documents[0], documents[2], documents[3])
    assert remove_near_duplicates(documents, pairs) == kept
    assert remove_near_duplicates(documents, reversed(pairs)) == kept


# --- python-docs ---


def test_the_raw_corpus_is_the_one_that_is_deduplicated():
    raw, corpus = load("python-docs-raw"), load("python-docs")
    assert deduplicate(raw) == corpus.documents
    assert raw.n_bytes > corpus.n_bytes + 10_000
    assert (raw.name, corpus.name) == ("python-docs-raw", "python-docs")


def test_the_embedded_corpus_has_its_usual_size_and_topics_then_modules_each_title_once():
    """651 documents with 2.06 MB on Python 3.11, 603 on 3.12, 606 on 3.13; less without Tk."""
    corpus = load("python-docs")
    assert 450 <= len(corpus) <= 750
    assert 1_700_000 <= corpus.n_bytes <= 2_500_000
    titles = titles_of(corpus)
    kinds = [title.split()[0] for title in titles]
    assert kinds == sorted(kinds, reverse=True)
    assert set(kinds) == {"topic", "module"}
    assert len(set(titles)) == len(titles)
    assert {"topic assert", "module json", "module asyncio.events"} <= set(titles)


def test_every_docstring_that_help_shows_is_in_the_embedded_corpus():
    """An independent implementation: import the module and ask its objects."""
    whole = "\n\n".join(texts_of(load("python-docs")))
    for documented in (textwrap, textwrap.TextWrapper, textwrap.dedent, json.JSONDecoder.decode):
        for paragraph in inspect.getdoc(documented).split("\n\n"):
            assert paragraph.strip() in whole


def write_sources(folder, sources):
    for name, source in sources.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")


def test_modules_are_read_in_order_of_their_names_and_never_run(tmp_path):
    sources = {
        "zebra.py": '"""Stripes."""\nraise SystemExit',
        "pack/__init__.py": '"""All."""',
        "pack/wolf.py": 'def howl():\n    """Loud.\n\n       Long."""',
        "bare.py": "x = 1",
    }
    write_sources(tmp_path, sources)
    assert corpora._module_documents(tmp_path) == [
        Document("module pack", "All."),
        Document("module pack.wolf", "Loud.\n\nLong."),
        Document("module zebra", "Stripes."),
    ]


@pytest.mark.parametrize(
    "folder", ["test", "json/tests", "idlelib/idle_test", "site-packages/torch", "lib2to3"]
)
def test_tests_and_installed_packages_are_left_out(tmp_path, folder):
    write_sources(tmp_path, {f"{folder}/module.py": '"""No."""', "testing.py": '"""Yes."""'})
    assert titles_of(corpora._module_documents(tmp_path)) == ["module testing"]


BLOCKS = ["if a:", "else:", "try:", "except E:", "else:", "finally:", "with x:", "for y in z:"]
BLOCKS += ["while y:", "class C:", "async def g():", "match x:\n  case 1:"]


def test_docstrings_are_found_in_their_order_wherever_a_definition_may_stand():
    defined = [f"{head}\n    def f(): 'in block {n}'\n" for n, head in enumerate(BLOCKS)]
    source = "'of the module'\n" + "".join(defined) + "'no docstring'\ndef o(): ''"
    expected = ["of the module", *(f"in block {n}" for n in range(len(BLOCKS)))]
    assert list(corpora._docstrings(ast.parse(source))) == expected


def test_a_python_without_sources_is_told_so(tmp_path, monkeypatch):
    monkeypatch.setattr(corpora.sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"comes without its sources: load\(path\)"):
        corpora._raw_python_docs.__wrapped__()


@pytest.fixture
def sources_of_one_module(tmp_path, monkeypatch):
    """A folder of sources, and an empty cache elsewhere."""
    monkeypatch.setenv("NEXT_TOKEN_CACHE", str(tmp_path / "cache" / "of books"))
    write_sources(tmp_path / "lib", {"owl.py": '"""Hoots at 100 €."""'})
    return tmp_path / "lib"


def kept_texts(folder):
    return texts_of(corpora._kept_module_documents(folder))


def test_the_second_process_reads_what_the_first_has_parsed(sources_of_one_module, monkeypatch):
    first = corpora._kept_module_documents(sources_of_one_module)
    assert first == corpora._module_documents(sources_of_one_module)
    monkeypatch.setattr(corpora, "_module_documents", lambda folder: pytest.fail("parsed again"))
    assert corpora._kept_module_documents(sources_of_one_module) == first


@pytest.mark.parametrize("change", ["a source", "a new module", "another Python", "another folder"])
def test_what_is_kept_is_not_used_for_other_sources(sources_of_one_module, monkeypatch, change):
    folder = sources_of_one_module
    assert kept_texts(folder) == ["Hoots at 100 €."]
    if change == "a source":
        write_sources(folder, {"owl.py": '"""Hoots at 200 €."""'})  # of the same size
    elif change == "a new module":
        write_sources(folder, {"eagle.py": '"""Screams."""'})
    elif change == "another folder":
        folder = folder.parent / "other"
        write_sources(folder, {"owl.py": '"""Hoots at 300 €."""'})
    else:
        monkeypatch.setattr(corpora.sys, "version", "3.99")
    monkeypatch.setattr(corpora, "_docstrings", lambda tree: ["parsed"])
    assert set(kept_texts(folder)) == {"parsed"}


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"key": 1', b"\xff"])
def test_a_damaged_file_of_the_cache_is_replaced(sources_of_one_module, content):
    assert kept_texts(sources_of_one_module) == ["Hoots at 100 €."]
    (kept,) = corpora.cache_folder().iterdir()
    whole = kept.read_bytes()
    kept.write_bytes(content)
    assert kept_texts(sources_of_one_module) == ["Hoots at 100 €."]
    assert kept.read_bytes() == whole


def test_without_a_place_for_a_cache_the_sources_are_parsed(sources_of_one_module, monkeypatch):
    monkeypatch.setenv("NEXT_TOKEN_CACHE", str(sources_of_one_module / "owl.py"))  # a file
    assert kept_texts(sources_of_one_module) == ["Hoots at 100 €."]


# --- load(path) ---


def write(tmp_path, content, name="notes.txt"):
    path = tmp_path / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("as_type", [str, Path])
def test_a_file_keeps_its_bytes_except_a_byte_order_mark(tmp_path, as_type):
    path = write(tmp_path, b"\xef\xbb\xbfna\xc3\xafve\r\nline\r\n\r\nlast\n")
    corpus = load(as_type(path))
    assert "".join(texts_of(corpus)) == "naïve\r\nline\r\n\r\nlast\n"
    assert corpus.n_bytes == path.stat().st_size - 3
    assert corpus.name == "notes.txt"


def test_a_hundred_equal_paragraphs_become_fifty_blocks_of_two(tmp_path):
    """100 paragraphs of 5 bytes with their blank line: a block ends at 10, 20, … 500."""
    path = write(tmp_path, b"abc\n\n" * 100)
    assert texts_of(load(path)) == ["abc\n\nabc\n\n"] * 50


def test_a_file_of_one_paragraph_is_one_document(tmp_path):
    assert texts_of(load(write(tmp_path, b"\n \none\ntwo\n\n \n  "))) == ["\n \none\ntwo\n\n \n  "]


@calmly
@given(ragged_texts.filter(str.strip), st.integers(1, 11))
def test_blocks_join_to_the_text_and_end_where_a_paragraph_ends(text, n_blocks):
    blocks = texts_of(corpora._blocks(text, "drawn", n_blocks=n_blocks))
    assert "".join(blocks) == text
    assert len(blocks) <= n_blocks
    assert all(block.strip() for block in blocks)
    for block, following in itertools.pairwise(blocks):
        lines = block.split("\n")
        assert lines[-1] == ""
        assert not lines[-2].strip(), "a block ends with a blank line"
        assert following.split("\n")[0].strip(), "the next begins with a paragraph"


def test_a_separator_stands_between_documents_and_blank_ones_are_dropped(tmp_path):
    path = write(tmp_path, b"one\n\nstill one<|end|>two\n<|end|> \n<|end|>three")
    corpus = load(path, document_separator="<|end|>")
    assert texts_of(corpus) == ["one\n\nstill one", "two\n", "three"]
    assert len(set(titles_of(corpus))) == 3


def test_a_known_name_wins_over_a_file_but_a_path_asks_for_the_file(tmp_path, monkeypatch):
    write(tmp_path, b"mine", "python-docs")
    monkeypatch.chdir(tmp_path)
    assert len(load("python-docs")) > 1
    assert texts_of(load(Path("python-docs"))) == ["mine"]


@pytest.mark.parametrize(
    ("content", "separator", "words"),
    [
        (b"", None, "holds no text: 0 bytes"),
        (b" \n\t\r\n", None, "holds no text: 5 bytes"),
        (b"\xef\xbb\xbf", None, "holds no text: 3 bytes"),
        (b"one\n\ntwo", "", "expected a document_separator that occurs in"),
        (b"one\n\ntwo", "---", "expected a document_separator that occurs in"),
        (b"one\ncaf\xe9\n", None, r"0xe9 in position 7: .*\(line 2\): save the file as UTF-8"),
        (b"\xef\xbb\xbfab\xff", None, "0xff in position 5:"),  # the byte-order mark counts
    ],
)
def test_a_file_that_holds_no_text_or_cannot_be_cut_is_refused(tmp_path, content, separator, words):
    with pytest.raises(ValueError, match=words):
        load(write(tmp_path, content), document_separator=separator)


def test_what_is_no_file_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file .*shakespear .*'python-docs', 'shakesp"):
        load(tmp_path / "shakespear")
    with pytest.raises(IsADirectoryError):
        load(tmp_path)
    with pytest.raises(ValueError, match="document_separator is for files of your own"):
        load("python-docs", document_separator="\n")


# --- Downloads, against a server on this machine ---


BODIES = {"good": GOOD, "cut": GOOD[:50_021], "wrong": GOOD.replace(b"question", b"quextion", 1)}


class Handler(BaseHTTPRequestHandler):
    """Sends the good file, or fails in the way that the path names."""

    def do_GET(self):
        self.server.requests.append(self.path)
        if (body := BODIES.get(self.path.strip("/"))) is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(GOOD)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        """Say nothing."""


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.requests = []
    server.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder, set as the reader would set it."""
    folder = tmp_path / "cache"
    folder.mkdir()
    monkeypatch.setenv("NEXT_TOKEN_CACHE", str(folder))
    return folder


def content_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def shakespeare(server, cache, monkeypatch):
    """Makes `load("shakespeare")` ask the local server; returns how to choose its answer."""

    def answer(way):
        url = f"{server.address if way != 'refused' else 'http://127.0.0.1:9'}/{way}"
        remote = (url, "tinyshakespeare.txt", SHA256)
        monkeypatch.setitem(corpora.REMOTES, "shakespeare", remote)

    return answer


def test_shakespeare_is_fetched_once_and_then_needs_no_network(shakespeare, cache, server):
    shakespeare("good")
    first = load("shakespeare")
    shakespeare("refused")
    assert load("shakespeare") == first
    assert "".join(texts_of(first)).encode() == GOOD
    assert len(first) == 50
    assert content_of(cache) == {"tinyshakespeare.txt": GOOD}
    assert server.requests == ["/good"]


@pytest.mark.parametrize("before", [{}, {"tinyshakespeare.txt": b"old", "neighbour": b"other"}])
@pytest.mark.parametrize(
    ("way", "reason"),
    [
        ("cut", "38111 more expected"),
        ("wrong", "does not match the known hash"),
        ("missing", "404 Client Error"),
        ("refused", "refused"),
    ],
)
def test_a_failed_fetch_changes_no_file_and_says_how_to_go_on(
    shakespeare, cache, way, reason, before
):
    for name, content in before.items():
        (cache / name).write_bytes(content)
    shakespeare(way)
    with pytest.raises(OSError, match=reason) as caught:
        load("shakespeare")
    message = str(caught.value)
    assert f"a file with SHA-256 {SHA256}" in message
    assert f"put that file at {cache / 'tinyshakespeare.txt'}" in message
    assert 'or use load("python-docs")' in message
    assert content_of(cache) == before


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"NEXT_TOKEN_CACHE": "/a", "XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/a"),
        ({"NEXT_TOKEN_CACHE": "~/mine", "HOME": "/c"}, "/c/mine"),
        ({"NEXT_TOKEN_CACHE": "", "XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/b/next-token"),
        ({"XDG_CACHE_HOME": "", "HOME": "/c"}, "/c/.cache/next-token"),
        ({"HOME": "/c"}, "/c/.cache/next-token"),
    ],
)
def test_the_environment_moves_the_cache(monkeypatch, environment, expected):
    for name in ("NEXT_TOKEN_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert corpora.cache_folder() == Path(expected)


# --- split ---

FIVE = Corpus("five", tuple(Document(title, "x" * 10) for title in "abcde"))


@pytest.mark.parametrize(
    ("seed", "train", "validation", "test"), [(0, "ce", "b", "ad"), (1, "ac", "e", "bd")]
)
def test_documents_go_by_the_sha256_of_seed_and_title(seed, train, validation, test):
    """`printf '0\\na' | sha256sum` and so on begin with a 0d, b 3e, c ef, d 0c, e c1: d a b e c.

    Of 50 bytes test wants 15 and takes two documents, validation wants 10 and takes one. With seed
    1 they begin with a 87, b 2c, c 6d, d 12, e 4d: d b e c a.
    """
    parts = split(FIVE, validation=0.2, test=0.3, seed=seed)
    assert [titles_of(part) for part in parts] == [list(train), list(validation), list(test)]
    assert [part.name for part in parts] == ["five/train", "five/validation", "five/test"]


def try_split(corpus, **shares):
    with contextlib.suppress(ValueError):
        return split(corpus, **shares)
    return None


@calmly
@given(corpora_to_split, st.floats(0, 0.4), st.floats(0, 0.4), st.integers(0, 5))
def test_parts_share_out_the_documents_in_order_and_reach_their_share(corpus, valid, test, seed):
    """Nothing is lost or in two parts, a share is reached by no document more than needed, and a
    corpus read backwards has the same parts.
    """
    parts = try_split(corpus, validation=valid, test=test, seed=seed)
    backwards = Corpus("drawn", corpus.documents[::-1])
    mirrored = try_split(backwards, validation=valid, test=test, seed=seed)
    assert (parts is None) == (mirrored is None)
    if not parts:
        return
    assert len(parts.train) > 0
    titles = [title for part in parts for title in titles_of(part)]
    assert sorted(titles) == sorted(titles_of(corpus))
    for part, other in zip(parts, mirrored, strict=True):
        assert [document for document in corpus if document in part.documents] == list(part)
        assert part.documents == other.documents[::-1]
    for part, share in ((parts.test, test), (parts.validation, valid)):
        assert part.n_bytes >= share * corpus.n_bytes
        if part.documents:
            last = max(
                part, key=lambda one: hashlib.sha256(f"{seed}\n{one.title}".encode()).digest()
            )
            assert part.n_bytes - last.n_bytes < share * corpus.n_bytes


def test_documents_under_one_title_are_still_told_apart():
    corpus = Corpus("same", tuple(Document("title", text * 7) for text in "abcde"))
    parts = split(corpus, validation=0.2, test=0.2)
    assert sorted(text[0] for part in parts for text in texts_of(part)) == list("abcde")


@pytest.mark.parametrize("n_documents", [0, 1, 2])
def test_too_few_documents_are_refused_with_their_number_and_a_way_out(n_documents):
    corpus = Corpus("few", FIVE.documents[:n_documents])
    with pytest.raises(ValueError, match=f"too few: {n_documents} in few, .*smaller shares"):
        split(corpus)
    documents = (*FIVE.documents[:3], Document("e", "x" * 9_001))
    with pytest.raises(ValueError, match="too few: 4 in uneven, the longest 9,001 bytes"):
        split(Corpus("uneven", documents), validation=0.3, test=0.1, seed=0)


@pytest.mark.parametrize("shares", [(-0.1, 0.1), (0.1, -0.1), (0, 1.0), (0.5, 0.5), (math.nan, 0)])
def test_shares_out_of_range_are_refused(shares):
    with pytest.raises(ValueError, match="from 0, together below 1, got validation="):
        split(FIVE, validation=shares[0], test=shares[1])


# --- One stream of bytes ---


def test_a_text_with_the_byte_of_the_end_token_is_refused():
    with pytest.raises(ValueError, match="byte 0, the end token, got one in a"):
        Corpus("bad", (Document("a", "no\0"),)).to_bytes()
    assert Corpus("none", ()).to_bytes() == b"\0"
