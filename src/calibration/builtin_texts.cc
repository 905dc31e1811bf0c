#include "calibration/builtin_texts.h"

namespace turboquant {
namespace {

constexpr std::string_view kDialogue =
    R"(User: My tomato plants have yellow leaves at the bottom. Am I watering too much?
Assistant: Perhaps. Before you change anything, push a finger five centimetres into the soil. If it is wet there two days after the last watering, wait longer. If it is dry, the plants may lack nitrogen instead: the oldest leaves give theirs up first.
User: It is dry on top and damp below.
Assistant: Then water less often, but thoroughly, early in the morning, and keep the leaves dry. Remove the yellow ones so that nothing rots against the stem.
User: And the brown spots with rings around them?
Assistant: That sounds like early blight, a fungus. Cut those leaves off, throw them in the bin and not on the compost, and put some straw under the plants so that rain does not splash soil on them.
User: Do I have to spray?
Assistant: Not yet. If new spots keep coming after a week of dry weather, a copper spray every ten days is the usual remedy. Wash the fruit before you eat it.
User: Thanks. One more thing: what is 15 % of 84?
Assistant: 12.6. Ten percent is 8.4, half of that is 4.2, and the two together make 12.6.
)";

constexpr std::string_view kCode = R"(#include <cstdio>
#include <map>
#include <string>
#include <vector>

// Counts how often every word of a line occurs and prints those that occur more than once.
struct Counter {
  std::map<std::string, int> counts;
  void Add(const std::string& word) { counts[word] += 1; }
  int Largest() const {
    int largest = 0;
    for (const auto& [word, count] : counts) largest = count > largest ? count : largest;
    return largest;
  }
};

int main(int argc, char** argv) {
  Counter counter;
  for (int i = 1; i < argc; ++i) counter.Add(argv[i]);
  for (const auto& [word, count] : counter.counts) {
    if (count > 1) std::printf("%s: %d\n", word.c_str(), count);
  }
  return counter.Largest() == 0 ? 1 : 0;
}

def moving_average(values, width):
    """Mean of the last `width` values at every position; shorter at the start."""
    if width < 1:
        raise ValueError(f"width must be positive, not {width}")
    total, result = 0.0, []
    for i, value in enumerate(values):
        total += value
        if i >= width:
            total -= values[i - width]
        result.append(total / min(i + 1, width))
    return result

SELECT customer.name, SUM(orders.amount) AS total
FROM customer JOIN orders ON orders.customer_id = customer.id
WHERE orders.day >= '2024-01-01' GROUP BY customer.name HAVING SUM(orders.amount) > 1000 ORDER BY total DESC;

{"name": "sensor-7", "readings": [21.5, 21.7, 22.0], "ok": true, "unit": "celsius"}
)";

constexpr std::string_view kMathematics =
    R"(Problem. A train leaves at 9:10 and covers the first 84 km at 56 km/h. It stands for 12 minutes and goes on at 72 km/h for 54 km. When does it arrive?
Solution. The first part takes 84 / 56 = 1.5 hours, that is 90 minutes. The second takes 54 / 72 = 0.75 hours, that is 45 minutes. Together with the stop: 90 + 12 + 45 = 147 minutes = 2 h 27 min. It arrives at 11:37.
Problem. Show that the sum of the first n odd numbers is n^2.
Solution. For n = 1 the sum is 1 = 1^2. If 1 + 3 + ... + (2n - 1) = n^2, then adding the next odd number 2n + 1 gives n^2 + 2n + 1 = (n + 1)^2. By induction the claim holds for every n >= 1.
Problem. Find all x with x^2 - 5x + 6 = 0. Solution. (x - 2)(x - 3) = 0, hence x = 2 or x = 3. Check: 4 - 10 + 6 = 0 and 9 - 15 + 6 = 0.
The derivative of f(x) = x^3 sin(x) is f'(x) = 3x^2 sin(x) + x^3 cos(x). Its integral from 0 to pi is pi^3 - 6 pi, about 12.157.
17 * 23 = 391. 1024 / 32 = 32. sqrt(2) = 1.41421356... 0.1 + 0.2 = 0.3 in exact arithmetic.
)";

constexpr std::string_view kProse =
    R"(The harbour master kept two clocks on his wall, one for the town and one for the tide, and it was understood that when they disagreed the tide was right. On the morning of the storm they had stopped together. He wound the first, tapped the second, and went down to the quay in his slippers. The boats lay as he had left them, except that the smallest, a blue dinghy that belonged to nobody in particular, had gone. In its place floated a wooden crate with a rope around it, and on the crate, quite dry, sat a cat.
He was not a man who talked to animals. But there was no one else to ask, and so he said, rather stiffly, that mooring was free for the first night and four crowns after that. The cat looked past him at the town, where the lamps were going out one after the other, and seemed to be counting.
By noon the wind had turned. People came to see the crate, and each of them knew at once what was inside: oranges, said the grocer; books, said the teacher; the customs officer said nothing and took out his pencil. It was the fisherman's daughter who cut the rope. Inside was a clock, ticking, and it showed the right time.
)";

constexpr std::string_view kLanguages =
    R"(Der Bäcker am Marktplatz öffnet um sechs Uhr, doch wer frische Brötchen will, steht schon um Viertel vor an. Im Winter brennt dann noch Licht über der Tür, und man hört, wie drinnen die Bleche klappern.
Chaque dimanche, ma grand-mère mettait la table pour douze personnes, même quand nous n'étions que cinq. « On ne sait jamais qui va passer », disait-elle, et presque toujours quelqu'un passait.
El tren de las ocho llegó con media hora de retraso, pero nadie se quejó: el maquinista había parado para dejar cruzar a un rebaño de ovejas, y todos habían bajado a mirar.
Il ponte vecchio fu ricostruito tre volte, e ogni volta gli abitanti dissero che quello di prima era più bello. Oggi lo attraversano soltanto le biciclette.
Stary zegar na wieży spóźnia się o siedem minut i nikt nie chce go naprawić, bo całe miasto przywykło do tego, że ma trochę więcej czasu.
Старый маяк давно не светит, но рыбаки всё равно смотрят в его сторону, когда возвращаются домой.
図書館の窓からは小さな川が見える。春になると、子どもたちが橋の上から笹の舟を流す。
老人每天早上在公园里写字，用一支大笔蘸着清水写在石板上，太阳一出来，字就慢慢消失了。
)";

constexpr BuiltinText kTexts[] = {
    {"dialogue", kDialogue}, {"code", kCode},           {"mathematics", kMathematics},
    {"prose", kProse},       {"languages", kLanguages},
};

}  // namespace

std::span<const BuiltinText> BuiltinCalibrationTexts() { return kTexts; }

}  // namespace turboquant
