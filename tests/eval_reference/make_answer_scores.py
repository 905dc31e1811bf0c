#!/usr/bin/env python3
"""Writes answer_scores.json: BLEU-4 and ROUGE-L of token sequences as sacrebleu and rouge-score compute them.

    python3 -m venv venv && venv/bin/pip install sacrebleu==2.6.0 rouge-score==0.1.2
    venv/bin/python tests/eval_reference/make_answer_scores.py            write the file
    venv/bin/python tests/eval_reference/make_answer_scores.py --check    compare with what is committed, exit 1 on a difference

src/eval/answer_scores_test.cc holds ours to it. A case is a corpus: answers of the reference and of a candidate, as tokens. Both
libraries see each token as one word: no tokenizer of theirs comes between. rouge_l is the mean of F1 over the answers.
"""
import argparse
import json
import pathlib
import random

import sacrebleu
from rouge_score import rouge_scorer

FILE = pathlib.Path(__file__).with_name("answer_scores.json")


class Words:
    @staticmethod
    def tokenize(text):
        return text.split()


def scores(reference, candidate):
    texts = [[" ".join(map(str, answer)) for answer in answers] for answers in (reference, candidate)]
    bleu = sacrebleu.corpus_bleu(texts[1], [texts[0]], tokenize="none", force=True)
    scorer = rouge_scorer.RougeScorer(["rougeL"], tokenizer=Words())
    rouge = [scorer.score(target, prediction)["rougeL"].fmeasure for target, prediction in zip(*texts)]
    return {"reference": reference, "candidate": candidate, "bleu": bleu.score, "rouge_l": sum(rouge) / len(rouge)}


def changed(answer, share, vocabulary, rng):
    """The answer with a share of its tokens replaced, left out or doubled."""
    result = []
    for token in answer:
        kind = rng.randrange(3) if rng.random() < share else 3
        result += {0: [rng.randrange(vocabulary)], 1: [], 2: [token, token], 3: [token]}[kind]
    return result


def cases():
    rng = random.Random(1)
    yield "identical", [[5, 9, 2, 7, 7, 1], [3, 4, 5, 6]], [[5, 9, 2, 7, 7, 1], [3, 4, 5, 6]]
    yield "nothing in common", [[1, 2, 3, 4, 5]], [[6, 7, 8, 9, 10]]
    yield "no pair in common", [[1, 2, 3, 4, 5]], [[5, 4, 3, 2, 1]]
    yield "no three in common", [[1, 2, 3, 4, 5, 6]], [[1, 2, 9, 4, 5, 8]]
    yield "too short for four", [[1, 2, 3]], [[1, 2, 3]]
    yield "candidate empty", [[1, 2, 3, 4]], [[]]
    yield "one of two empty", [[1, 2, 3, 4], [5, 6, 7, 8]], [[], [5, 6, 7, 8]]
    yield "candidate shorter", [[1, 2, 3, 4, 5, 6, 7, 8]], [[1, 2, 3, 4, 5]]
    yield "candidate longer", [[1, 2, 3, 4, 5]], [[1, 2, 3, 4, 5, 6, 7, 8]]
    yield "repeats are clipped", [[1, 2, 1, 2, 3, 1]], [[1, 1, 1, 2, 1, 2, 1, 2]]
    for vocabulary in (3, 50, 50000):
        for share in (0.02, 0.3):
            reference = [[rng.randrange(vocabulary) for _ in range(rng.randrange(1, 130))] for _ in range(6)]
            yield (f"{share:.0%} changed, {vocabulary} tokens", reference,
                   [changed(answer, share, vocabulary, rng) for answer in reference])
        parted = [answer[:20] + [rng.randrange(vocabulary) for _ in range(60)] for answer in reference]
        yield f"parted after 20, {vocabulary} tokens", reference, parted


def make():
    lines = [json.dumps({"name": name} | scores(reference, candidate)) for name, reference, candidate in cases()]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        if FILE.read_text(encoding="utf-8") != make():
            raise SystemExit(f"{FILE} is not what this script writes")
        return
    FILE.write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
