#!/usr/bin/env python3
"""Writes tasks.jsonl: 60 small tasks with a right answer for `turboquant eval --tasks`.

    make_tasks.py            write the file
    make_tasks.py --check    compare with what is committed, exit 1 on a difference

Everything here was written for this file. Questions follow solved examples, because the newest partial block of a cache is exact (`eval`
counts prompts shorter than a block), and a fifth of them a register of some 800 words in which the answer stands once. A set of 60 can
show that a cache is broken, not that it is good: one item is 1.7 points.
"""
import argparse
import json
import pathlib
import random

FILE = pathlib.Path(__file__).with_name("tasks.jsonl")

# Question, right answer, three wrong ones.
SOLVED_CHOICES = [
    ("What do bees make?", "honey", ()), ("What is the capital of Portugal?", "Lisbon", ()),
    ("Which animal barks?", "a dog", ()), ("What do we call frozen water?", "ice", ()),
    ("How many legs does a spider have?", "eight", ()), ("What does a clock show?", "the time", ()),
    ("Which fruit is long and yellow?", "a banana", ()), ("Where do fish live?", "in water", ()),
    ("What is the opposite of left?", "right", ()), ("Which season comes before spring?", "winter", ()),
]
CHOICES = [
    ("What is the capital of France?", "Paris", ("Rome", "Madrid", "London")),
    ("What is the capital of Japan?", "Tokyo", ("Beijing", "Seoul", "Bangkok")),
    ("What is the capital of Egypt?", "Cairo", ("Tunis", "Lagos", "Nairobi")),
    ("What is the capital of Italy?", "Rome", ("Vienna", "Athens", "Berlin")),
    ("Which planet is the largest in the solar system?", "Jupiter", ("Mars", "Venus", "Mercury")),
    ("Which planet is closest to the sun?", "Mercury", ("Saturn", "Neptune", "Jupiter")),
    ("What gas do plants take in from the air?", "carbon dioxide", ("helium", "neon", "hydrogen")),
    ("What is the chemical symbol of gold?", "Au", ("Ag", "Fe", "Pb")),
    ("What is water made of?", "hydrogen and oxygen", ("carbon and iron", "nitrogen and helium", "salt and sand")),
    ("Who wrote the play Romeo and Juliet?", "William Shakespeare", ("Charles Dickens", "Jane Austen", "Mark Twain")),
    ("Which ocean lies between Europe and North America?", "the Atlantic", ("the Pacific", "the Indian", "the Arctic")),
    ("Which organ pumps blood through the body?", "the heart", ("the liver", "the lung", "the stomach")),
    ("Which animal is the largest on Earth?", "the blue whale", ("the elephant", "the giraffe", "the horse")),
    ("What do cows drink as calves?", "milk", ("tea", "oil", "juice")),
    ("How many days are in a week?", "seven", ("five", "nine", "twelve")),
    ("How many months are in a year?", "twelve", ("ten", "eight", "twenty")),
    ("How many sides does a triangle have?", "three", ("four", "five", "six")),
    ("What colour is the sky on a clear day?", "blue", ("green", "red", "brown")),
    ("What colour do you get from blue and yellow paint?", "green", ("pink", "black", "white")),
    ("Which bird cannot fly?", "the penguin", ("the eagle", "the swallow", "the sparrow")),
    ("What is the largest desert in Africa?", "the Sahara", ("the Gobi", "the Mojave", "the Atacama")),
    ("Which river flows through London?", "the Thames", ("the Nile", "the Danube", "the Amazon")),
    ("Which metal is attracted by a magnet?", "iron", ("wood", "glass", "copper")),
    ("What is the main language of Brazil?", "Portuguese", ("French", "German", "Italian")),
    ("Who painted the Mona Lisa?", "Leonardo da Vinci", ("Vincent van Gogh", "Pablo Picasso", "Claude Monet")),
    ("At what temperature in Celsius does water boil?", "100 degrees", ("10 degrees", "500 degrees", "37 degrees")),
    ("Which force pulls things to the ground?", "gravity", ("friction", "magnetism", "sound")),
    ("What do caterpillars turn into?", "butterflies", ("spiders", "fish", "birds")),
    ("What do you use to cut paper?", "scissors", ("a spoon", "a pillow", "a cup")),
    ("Where does the sun rise?", "in the east", ("in the west", "in the north", "in the south")),
    ("Which instrument has black and white keys?", "the piano", ("the drum", "the flute", "the violin")),
    ("What is the opposite of hot?", "cold", ("tall", "fast", "loud")),
    ("What do you wear on your feet?", "shoes", ("gloves", "a hat", "a scarf")),
    ("Who works in a hospital?", "a doctor", ("a sailor", "a farmer", "a pilot")),
]
# Examples are sums too, but none of those that are asked.
SOLVED_SUMS = [(3, 4), (10, 5), (8, 8), (20, 7), (6, 13), (31, 2), (9, 9), (40, 12), (15, 14), (50, 50)]
SUMS = [(2, 5), (7, 6), (10, 20), (9, 4), (12, 8), (25, 25), (30, 11), (16, 3)]
SOLVED_COPIES = ["cat lamp", "blue door", "seven green bottles", "tin can", "old stone bridge", "a red kite", "wet sand",
                 "soft grey wool", "one more day", "north wind", "salt and pepper", "a long road home"]
COPIES = ["silver train window", "the quiet harbour", "paper moon and cloth stars", "nine brown hens"]

SHIPS = ["Aurora", "Beatrice", "Corvus", "Dolphin", "Esperanza", "Falcon", "Gloria", "Halcyon", "Iris", "Juno", "Kestrel", "Linnet",
         "Minerva", "Nautilus", "Orion", "Petrel", "Quest", "Rosalind", "Swift", "Triton", "Ursula", "Victoria", "Wanderer", "Zephyr"]
GOODS = ["copper", "wool", "sugar", "timber", "oranges", "tea", "glass", "rice", "salt", "coal", "paper", "silk"]
TOWNS = ["Bergen", "Cadiz", "Dublin", "Genoa", "Hamburg", "Lisbon", "Malta", "Naples", "Oslo", "Porto", "Riga", "Tunis"]


def solved(pairs):
    return "".join(f"Question: {question}\nAnswer: {answer}\n\n" for question, answer, *_ in pairs)


def choice(prompt, right, wrong, rng):
    texts = [right, *wrong]
    rng.shuffle(texts)
    return {"type": "choice", "prompt": prompt, "choices": [" " + text for text in texts], "answer": texts.index(right)}


def exact(prompt, answer):
    return {"type": "exact", "prompt": prompt, "answer": answer}


def register(rng, num_lines):
    """Text of a register, and its entries; no ship, and no number, stands in two lines."""
    numbers = rng.sample(range(100, 1000), num_lines)
    ships = rng.sample(SHIPS, num_lines)
    entries = [{"ship": ship, "goods": rng.choice(GOODS), "town": rng.choice(TOWNS), "number": number}
               for ship, number in zip(ships, numbers)]
    lines = [f"The ship {entry['ship']} came from {entry['town']} on a {rng.choice(['calm', 'windy', 'foggy'])} "
             f"{rng.choice(['morning', 'evening'])} with {entry['goods']} in her hold. The clerk saw her papers, found nothing "
             f"amiss and gave her berth {entry['number']}. Her crew went ashore and came back before the tide."
             for entry in entries]
    return "Register of the harbour.\n\n" + "\n".join(lines) + "\n\n", entries


def long_items(rng):
    items = []
    for i in range(12):
        text, entries = register(rng, 20 + i % 4)
        shown, asked = rng.sample(entries[2:-4], 2)  # an early entry: its block is closed long before the question
        if i % 2 == 0:
            prompt = (f"{text}Question: What was the berth of the {shown['ship']}?\nAnswer: {shown['number']}\n\n"
                      f"Question: What was the berth of the {asked['ship']}?\nAnswer:")
            items.append(exact(prompt, str(asked["number"])))
            continue
        prompt = (f"{text}Question: Where did the {shown['ship']} come from?\nAnswer: {shown['town']}\n\n"
                  f"Question: Where did the {asked['ship']} come from?\nAnswer:")
        wrong = rng.sample([town for town in TOWNS if town != asked["town"]], 3)
        items.append(choice(prompt, asked["town"], wrong, rng))
    return items


def make():
    rng = random.Random(1)
    items = []
    for question, right, wrong in CHOICES:
        examples = rng.sample(SOLVED_CHOICES, len(SOLVED_CHOICES))
        items.append(choice(f"{solved(examples)}Question: {question}\nAnswer:", right, wrong, rng))
    for a, b in SUMS:
        examples = [(f"{c} + {d}", c + d) for c, d in rng.sample(SOLVED_SUMS, len(SOLVED_SUMS))]
        items.append(exact(f"{solved(examples)}Question: {a} + {b}\nAnswer:", str(a + b)))
    for text in COPIES:
        examples = [(f"Repeat: {words}", words) for words in rng.sample(SOLVED_COPIES, len(SOLVED_COPIES))]
        items.append(exact(f"{solved(examples)}Question: Repeat: {text}\nAnswer:", text))
    items += [exact(f"{solved([(f'The letter after {chr(c)}', chr(c + 1)) for c in range(65, 79) if c != letter])}"
                    f"Question: The letter after {chr(letter)}\nAnswer:", chr(letter + 1)) for letter in (68, 74)]
    items += long_items(rng)
    return "".join(json.dumps(item) + "\n" for item in items)


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
