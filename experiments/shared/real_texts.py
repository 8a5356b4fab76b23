"""Texts of our own of a kilobyte each: pieces of this book's prose, and short pieces in Japanese.

They were written in 2025 and 2026 for this book. Pieces of prose are stripped of their markup. The
first Japanese ones are sentences that have nothing to do with each other, eighteen or so in each.
"""


def pieces(text, join):
    """Paragraphs, each of lines that are put together."""
    return [join.join(piece.split("\n")) for piece in text.strip().split("\n\n")]


ENGLISH = pieces(
    """
Four winds, and the weather that each of them brings. What does a wind from 60 degrees bring? At a
hundredth it is the hard look-up, to nine digits; at ten it is nearly the mean of all four. Mind
the condition. The greatest score belongs to the nearest key because the keys are equally long.
Make one longer, and it wins without being near: If queries and keys were the same vectors, scores
would be symmetric: a verb could not look for its subject without being looked for just as much.
And what helps in finding a word need not be what one wants to know about it. Each output is a
weighted mean of the values, and so it never leaves their range. What attention can do is choose,
and blend. Take a query and a key as they are at the start of training, with components of about
unit size. In attention the last input has two jobs. Like every other input it is one of the
values that are mixed. And it alone is the query, which decides how they are mixed. To separate
the two jobs, we measure attentio

Attention computes weights from its input and averages values with them. The values are linear in
the input, and so is averaging. Is there any non-linearity? "No", says one of our sources, "it's
all just weighted averages". It is half right. The weights are a softmax of products of the input,
which is as non-linear as one can wish. But freeze them, keep who looks where as it is, and the
source is right to the letter. This is the division of labour in a Transformer. Attention moves
information between positions; the network after it computes with what has arrived. It is the MLP
of neural with one hidden layer, applied to each position by itself, with the same weights: It
takes a line or two, and is easy to get wrong. Six of the seven mistakes below stand in our
sources. None of them crashes. So the question is which test would catch them. Here are five
properties, checked with gain 1 and bias 0, and at last the usual test, the comparison with
PyTorch. One of our sources closes its list

And the floor? It is the entropy of the target given the source. In human languages it is above
zero, for there are many good translations. In both tasks of this chapter the target is a function
of the source. Nothing about it is uncertain, so the floor is 0 nats, and the perplexity of a
perfect model is 1. That makes a hard test: a model is right or wrong, word for word. The second
task changes the order of words. English sentences become sentences of a language that we invent.
In it the verb comes last, after everything else. Adjectives follow their noun, in reverse order.
Prepositions become postpositions, the place stands before the object, never moves to the very
end, and the has no counterpart. All these rules together have a simple effect: the subject stays
in front, and everything after it comes in the reverse of the English order. Sentences of a batch
are filled up with padding to a common length. One vocabulary serves for everything: A decoder is
a stack of causal blocks over

Is it worth it? Here is a task of two parts. A text is a row of random symbols, and each position
must give two answers: which symbol came just before me, and with which symbol did this text
begin? Both are easy. They need two places. The model is the smallest that can do it: symbols and
positions as vectors, attention, and a linear read-out for each answer. No residual connection, no
second layer: what attention has not gathered, the read-out does not know. Suppose that a head's
weights depend on the places only. Then one head is not enough, however it is trained: A trained
head is freer than that. Its weights may depend on the symbols, too, and then how much it took
from a place can tell the read-out something. So let us see. For comparison there is one head with
twice the channels and more than three times the parameters. Is a second head necessary, then? No.
Give the wide head six times as many steps, and a lower rate that falls to zero. Even then not
every start succeeds, so we tr

When is a loss below the floor a proof of a leak? Only on a long, new text. The floor is a mean
over all texts, so a short text can be luckier than the mean, and a text that the model was
trained on can be known by heart. Here every step draws new texts, and we average over fifty steps
of 512 tokens each. A block holds many things besides attention: norms, a feed-forward network,
residual sums. All of them treat each position by itself. So a mask controls all traffic between
positions. This can be seen without reading any code: change one input, and look which outputs
move. What moved after one block is the mask, with the diagonal added: the residual sum brings
each position its own input, even where the mask forbids it. This is the picture that the last
chapter asked for. A map of weights says where a head looked; a perturbation says what the output
depends on. It says only if. Whether the news really arrives, we measure: three new networks,
eight blocks each, float64. For every mask,

One of our sources concludes that attention operates over a set. That holds for an encoder. In a
language model a position may look only at itself and at what stands before it, and the causal
mask is not shuffled along with the text. A decoder with no positions at all is not a bag of
words. But it takes two layers: The two curves on the line did not fail to learn. What they were
asked cannot be seen from where they stand. In queries and keys. The third way is the prettiest,
and has a section of its own. All this lets a model be run on longer texts. Does it still work
there? We need a language in which position matters and whose floor is known. In ours each token
repeats the one two places before it with probability 0.9, and is otherwise drawn at random from
eight. To predict, one has to look at the token just before the present one: an easy place, if one
can say it. The loss is computed exactly, against the true next-token distribution. All models are
trained on texts of 16 tokens and

We need not take the first column on trust. PyTorch records which operation used the result of
which, for the sake of the gradient. The longest path through that record counts the sequential
steps, together with a few operations that only rearrange numbers, such as taking one row out of a
matrix. We count one layer of each family, and attention from the next chapter beside them: So one
reads. A new LSTM does no such thing, as the figure shows. Can a trained one? Give it a text that
begins with one of eight letters, followed by noise from another alphabet. Now and then comes a
question mark, and the answer is always the letter at the beginning. Training texts have 32
tokens. A language model on texts of the form source, separator, target is such a model, with one
set of weights for both parts. Our task is to write the source backwards. An evaluator scores our
letter-holding LSTM on documents. To be fast, it goes through them in one stream and hands on the
state. The model is perfect on

A language model is trained by hiding something that we have, and asking for it. What is hidden is
our choice. A chosen token meets one of three fates. With probability 80 % the mask token takes
its place, with 10 % a random token of the vocabulary, and with 10 % it stays as it is, and is
asked for all the same (section 3.1; why, we shall see). One thing is different in meaning. The
GPT's logits at a place are about the next token. The encoder's are about the token at that place,
so its targets are not shifted. They only make sense where something was hidden: elsewhere the
answer stands in the input. BERT reads two stretches of text at a time, with a separator in
between. A vector that is added to each token says to which of the two it belongs, the segment
embedding. Beside the hidden words the model answers a second question: does the second stretch
follow the first in the corpus, or was it drawn from anywhere? This next sentence prediction was
meant to teach what holds texts together

Are they the same? Nothing has to be trained to find out. All claims of this chapter are about
functions, so random parameters are as good as any; and we compute in float64, where rounding
cannot be mistaken for anything else. We met this in masks: no later input moves an earlier
output. Here we read it as a promise about work. Let us see that it holds for all layers of a GPT,
and what breaks it. An encoder looks both ways, and every new token changes every old state. Look
at what the proof uses. Attention must be causal. Everything else must treat positions alone: a
norm over the tokens of a text would break it, a norm over channels does not. And the vector of a
position must be counted from the beginning, so that it does not change when the text grows.
Remember the last condition. Now the new token alone goes through the layers. In each block it
makes one query, one key and one value; the key and the value join those that are kept, the
key-value cache, and the query looks at all of t

Two of the five find nothing that the rules before them have left. Such rules know what text looks
like, and nothing of what it says. The short docstrings go, and so do some pages of good prose
about numbers. Whoever reads what is refused learns more about a filter than from what it keeps.
By hand, and with the library that does it well. The sets have similarities from 0.1 to 0.9,
exactly. The authors of GPT-2 compared texts by n-grams of eight words, lower-cased, with
everything dropped that is neither letter nor digit (section 4). A sequence of eight words is
rarely an accident. The overlap of a test text with a training text is the share of its 8-grams
that occur there. Our 8-grams fit into a set. WebText's do not, if one has an ordinary computer.
Is a set needed? We never list it and never take anything out. All we ask is whether something is
in. And we could live with an error now and then, if we know how often. What was put in is found,
always. What was not put in may be found to

Two arms in one cell share their seed and their draw. If the draw is a lucky one, it is lucky for
both, and the paired difference does not feel it. So we take the difference in each of the nine
cells. How sure is their mean? Look at how the grid is made. Draw 2 is the same draw for all three
seeds: the same labels, the same order of the batches, and the same random head. The seeds are
crossed with the draws. A lucky draw lifts a whole column of the grid, as a good pre-training
lifts a whole row. More seeds shrink the first term only, more draws the second. With three draws
the luck of the draws stays in the mean, however many models we pre-train. Two simpler intervals
run beside it. One takes the spread of the seeds' means alone. The other treats all nine cells as
independent. The careless interval promises 95 % and falls far short of it as soon as seeds or
draws differ. The seeds alone do well as long as the draws matter little, and badly where they
matter most. Ours keeps its promise

A label has to be paid for: somebody reads the text and decides. And it says little. One of two
labels carries one bit at most, however long the text was. A text that only has to be predicted
needs nobody, and every token of it is a lesson. How many bits are in the documents of our
micro-world? and only then turn to the few examples that have labels. The first part is called
pre-training, the second fine-tuning. Nothing is new about the first part: the loop is that of
training, the text that of microworld. The recipe lies in the repository, and we follow it for
three hundred steps instead of all of them. Beside the GPT an LSTM with as many parameters reads
the very same batches, and Kneser–Ney models count the same text. All are scored on two hundred
documents that none of them has read, whole, and so is the perfect model. The authors pre-trained
once, and released the parameters. So do we, in our size: three checkpoints, from three seeds,
made by the full recipe. They come with the

"GPT-2 small has 117 million parameters" is what one reads, because the paper says so: 117, 345,
762 and 1,542 million for its four sizes. The released models have 124, 355, 774 and 1,558. No
rounding explains that; an exercise reconstructs what does. Training needs more memory than the
model. For each parameter there are four bytes of itself, four of its gradient, and eight of
AdamW's two averages: 16 bytes a parameter, before a single activation is stored. Put GPT-1's
vocabulary of 40,478 tokens in place of 50,257. That it was counted so is our reconstruction;
nobody has said it. GPT-1 itself has half the positions and no last norm, and rounds to 117
million as well. How many parameters more would the four sizes have with an unembedding of its
own, in per cent? Does tying save arithmetic, too? Count both on a small model before you believe
a formula. Somebody loads the released names by this rule: where a shape does not fit, transpose.
No error, and logits of about the right size. Wh

Not one bit of a parameter has changed. And yet the second model answers about a map that no text
in the world held before this prompt. "It has learnt" is a way to speak: what it did to the prompt
is a computation like any other, and what it learnt, it learnt in training, namely to look things
up. When the next prompt comes, nothing of this one is left. The first model cannot. It knows zorb
by heart, without any example, and it hears nothing else. Both models began with the same numbers
and took the same number of steps. Only the maps in their texts differ, so the maps are the cause.
One map or new ones are two ends. Between them are pools. Five seeds each were trained on pools of
1, 8, 64 and 512 maps, zorb being one of them, and on new maps, with the same number of steps. The
runs are recorded. Whatever a model's answers change with the order is its own error, and can be
measured without knowing one right answer. Four examples have 24 orders. We ask for the share of
prompts that are

Before we share anything out, let us see what there is. Take one parameter of a model and follow
it through one step of Adam in float32, where a number takes 4 bytes. Is that what happens? We can
count it, and we need no memory for it: on the device meta, tensors have shapes and no contents
(gpt2). We build GPT-2 xl there, pretend that a backward pass has been made, take a step of AdamW,
and add up the parameters, the gradients and the moments that are now there. Suppose that two
processes hold the same model. Each takes half of the texts in a batch and computes a gradient.
How do we get the gradient of the whole batch? The loss is the mean over the batch's tokens, They
are: a sum of two numbers does not depend on their order. With three or more processes it does, in
the last digit. So a run on four processes differs from a run on one by rounding, and a long run
drifts away from its twin, as it would on another processor (training). On 64 processors of 80 GB
only the third stage fits.

Suppose that you train a small GPT on your own mail and give it to a friend. You watched the
training loss all night. It fell to the end, so you kept the last model. Your friend types My
number is, and the model writes your telephone number. What went wrong? In this chapter we cause
this accident on purpose. We hide secrets in a text and train a model on it. Then we do what your
friend did: we type the beginning, and let the model go on. We plant some secrets once and some
more often, up to 256 times. Sixteen more secrets of the same kind are planted nowhere; they are
our controls. The next cell, folded, turns a secret into 13 tokens, the last six of them the
digits, and puts the copies at random places of a text. Now we do what your friend did. We type a
name and is, and take the most probable token six times. This is greedy decoding. What helps? The
curves say it: remove the copies before training, so that each secret stands in the text once.
This is called deduplication. We try it:

Somebody keeps a diary of the sky. Each of its texts belongs to one season, but the diary never
says which. Watch the rain. The first one costs 1.9 nats, the second 1.6: by then winter is
likelier than it was. Snow settles it. From then on it is winter for certain, and rain costs 1.2.
The last lines ask for the length: with no room for another line, the document closes. So no
document is ever too long, and none has to be cut or thrown away. All this will be needed: later
chapters derive labelled tasks from this language. Here we only want to know it. Score a text, and
a text that cannot be: Is it really exact? In a small world we can list everything: all documents
of up to 12 words, and all the beginnings of 12 words at which longer ones were cut. Both are
added up along their own derivations. If anything were lost or counted twice, the sum would tell.
Two samples differ: the floor of the whole language has one error, and the particular thousand
texts above have another. So we never co

To try it we need a model and a text. The text is English in 27 letters, and the model is a GPT of
two layers with 32 channels. Decay pulls every parameter towards 0, whatever the data say. Where
that is a sensible opinion, it helps against over-fitting; neural showed one such case. It is
sensible for the matrices, which multiply. It is not for Our GPTs tie the embedding to the
unembedding, and then every row gets gradient at every step. It still counts as a table.
Implementations differ in this; what matters is that the choice was made, and not by accident.
Does all this matter, if Adam adapts its steps by itself? Here are twelve learning rates and
schedules, each with three seeds: a constant rate, the cosine alone, and the cosine after a
warm-up over a fifth of the steps. The rounding of a gradient is lost in the noise of its batch.
What is the gain? That depends on the device, and on the size: our matrices are so small that
calling the product costs more than computing it. A process

One of our sources asked GPT-3 for a paragraph that would make readers curious about language
models, and quotes what came: a list of more things that one might be told to write. The model
"does not care at all whether it is answering my request". Here is the same in miniature. The
model is the first of the three that we released (gpt1 finetuning); it has read stories, reviews,
facts and lines in zorb. The first remedy is what we know: more text, of the right kind. Somebody
writes requests, and the answers that she would like to see, and the model is fine-tuned on them.
This is instruction tuning. It differs from the fine-tuning of gpt1 finetuning in two ways. There
is no head: the answer is written, token by token. And there are many tasks at once, so that what
is learnt is not a task but to do as asked. The model shall learn to answer, not to ask. So the
loss is that of the answer given the request, That is a batch like any other, and the loop of
training does the rest. Then we ask:

Nothing is approximated here, and nothing is lost by looking at one token only. Many other
families of models would be glad of it. Any function from ids to logits is a model in this sense;
our first language has its exact table. The last two lines plant the usual bug. A loop that breaks
when a text has ended is right for batches of one, and for larger ones it cuts most texts short.
So of all ways to draw a token with a given entropy, temperature is the one that draws the
likeliest ones. In both limits care is needed with what is impossible: it stays so, at any
temperature. From here on the model is one of real English: a Kneser–Ney model of order 4 on the
tokens of bpe. It is trained in a second; its faults are those of all models, only larger. Three
filters follow, with one question each. A filter is a function from logits to logits, and whatever
it drops gets minus infinity: it draws nothing itself, so filters can be tested, and applied one
after another. How many tokens stay, wher

""",
    " ",
)

JAPANESE = pieces(
    """
今日は朝から雨が降っています。明日は晴れるでしょう。駅まで歩いて15分かかります。電車は8
時20分に来ます。私は毎朝6時に起きます。妹は高校の2年生です。父は病院で働いています。母
は市場で魚と野菜を買いました。りんごは3個で400円です。この店のパンはとてもおいしいです
。図書館は夜9時まで開いています。先週、友達と海へ行きました。海の水はまだ冷たかったです。
日本語には漢字とひらがなとカタカナがあります。タイ語は言葉の間に空白を入れません。外国語を
覚えるには時間がかかります。わからない言葉は辞書で調べてください。先生はゆっくり話してくれ
ました。学生たちは教室で本を読んでいます。試験は来週の月曜日に始まります。昨日の夜は星がよ
く見えました。月は地球のまわりを回っています。冬は空

春になると、川のそばに花が咲きます。夏休みに祖母の家へ行くつもりです。祖母は古い写真を見せ
てくれました。その写真には若い男の人が写っていました。彼は町で一番古い家に住んでいます。そ
の家の前には大きな木があります。木の下で猫が寝ています。猫は雨の日が好きではありません。犬
は毎日散歩に行きたがります。男の子は犬と一緒に公園を走っていました。女の子は窓から外を見て
いました。彼女は手紙を書いて、友達に送りました。返事は一週間後に来ました。手紙には、元気で
すと書いてありました。お茶を飲みながら、ゆっくり話しましょう。コーヒーはもう冷めてしまいま
した。テーブルの上にコップが二つ置いてあります。財布を家に忘れてきました。お金が少し足りま
せんでした。店の人は、今度でいいです

そのかばんは5000円もします。もう少し安いものはありませんか。このりんごは一ついくらです
か。すみません、駅はどこですか。まっすぐ行って、二つ目の角を右に曲がってください。バスは1
0分ごとに来ます。次のバスは何時に出ますか。雨がやむまで、ここで待ちましょう。傘を持ってく
ればよかったです。店の中はとても静かでした。店主は新しい本を棚に並べました。棚の一番下に古
い地図がありました。この地図は100年前に作られたものです。昔、この町には大きな橋がありま
した。橋は嵐の夜に流されてしまいました。今は新しい橋を作っているところです。工事は3年かか
るそうです。兄は医者になりたいと言っています。姉は音楽の先生をしています。子どもたちは歌を
歌いながら帰りました。隣の部屋からピアノの音が聞こ

夜になると、町は静かになります。寝る前に本を読むのが好きです。この本は二回読みました。最後
のページがなくなっていました。物語の終わりは誰も知りません。昔々、山の中に一人の老人が住ん
でいました。老人は毎日川で水をくみました。ある日、川から小さな箱が流れてきました。箱の中に
は種が一つ入っていました。老人はその種を庭に植えました。春に小さな芽が出ました。10年後、
それは大きなりんごの木になりました。村の人はみんなりんごをもらいました。山の上から海が見え
ます。道は雪で白くなっていました。この橋を渡ると、隣の町です。隣の町には大学が二つあります
。彼は大学で歴史を勉強しています。授業は9時に始まって、4時に終わります。質問がある人は手
を上げてください。答えは一つだけではありま

よく考えてから答えてください。彼女は何も言わずに出ていきました。ドアの前に誰かが立っていま
した。鍵がどこにあるか知っていますか。鍵はいつもの場所にありました。本屋の前で友達を待って
います。お客さんは店の中をゆっくり見ていました。値段を見て、彼は本を棚に戻しました。この辞
書は1200円でした。切手を5枚ください。全部で2300円になります。お礼を言うのを忘れて
いました。何度も電話しましたが、誰も出ませんでした。昨日は一日中家にいました。夕方になって
、やっと雨がやみました。空には星が一つも見えませんでした。望遠鏡で土星を見たことがあります
か。土星には大きな輪があります。地球から月までは38万キロメートルです。光は1秒で30万キ
ロメートル進みます。太陽は東から昇って、西に沈みます。

日曜日は家族で昼ごはんを食べます。水曜日の午後は授業がありません。来月、東京へ引っ越すこと
になりました。新しい部屋は駅から近くて便利です。部屋には机と椅子と本棚しかありません。窓を
開けると、川の音が聞こえます。今年の夏は去年より暑いそうです。暑い日には冷たい水が一番です
。朝ごはんにパンと卵を食べました。昼はラーメンにしましょうか。このスープは少し塩が足りませ
ん。料理をするのは父の仕事です。皿を洗うのは私の仕事です。弟は野菜をほとんど食べません。弟
はまだ5歳ですが、もう字が読めます。ひらがなは全部で46文字あります。漢字は何千もあるので
、覚えるのが大変です。同じ言葉でも、書き方がいくつかあります。りんごはリンゴとも林檎とも書
きます。この漢字の読み方を教えてください

日本語の文には空白がありません。だから、どこで切るかは読む人が決めます。読む人は、ほとんど
考えずに読んでいます。機械にとっては、それは簡単なことではありません。コンピューターは文字
を数として覚えています。一つの文字に三つの数を使うこともあります。メールを送りましたが、ま
だ返事がありません。インターネットで地図を調べました。パソコンが急に動かなくなりました。写
真を撮ってもいいですか。ここでたばこを吸ってはいけません。静かにしてください。もう一度言っ
てください。私は一度も外国へ行ったことがありません。いつか船で世界を回ってみたいです。飛行
機は予定より40分遅れて着きました。空港には姉が迎えに来ていました。姉は前より少しやせたよ
うに見えました。久しぶりに会ったので、

時間がたつのは本当に早いものです。彼が何を考えているのか、私にはわかりません。彼女は笑いな
がら首を振りました。そんなことは大したことではないと彼女は言いました。少し休んだほうがいい
と医者に言われました。薬は一日に三回、食事の後に飲んでください。熱は下がりましたが、まだ体
が重いです。明日は学校を休むかもしれません。試験の結果はまだ出ていません。一番大切なのは、
あきらめないことです。失敗しても、もう一度やればいいのです。庭の花に水をやるのを忘れないで
ください。公園の池には魚がたくさんいます。鳥が南の空へ飛んでいきました。秋になると、山は赤
や黄色に変わります。雪が降る前に冬の準備をしなければなりません。祖父は毎晩同じ時間に時計を
巻きました。その時計は今も動いていま

机の引き出しに古い紙が入っていました。紙には名前と日付だけが書かれていました。それが誰の字
なのか、今では誰にもわかりません。窓の外を見ると、男の子が手を振っていました。上着を着ない
で出かけたので、寒かったです。タオルを貸してくれませんか。子どものころ、よくこの川で泳ぎま
した。川の水は今よりずっときれいでした。この町の人口は約2万人です。若い人は大きな町へ出て
いってしまいます。それでも、この町が好きだと言う人は多いです。来年、駅の前に新しい図書館が
できます。図書館には3万冊の本が入る予定です。店主は毎日同じ椅子に座って本を読んでいます。
今日売れた本は二冊だけでした。それでも店主は楽しそうに笑っていました。バスの中で隣の人に話
しかけられました。その人は30年前に母の学

世界は思ったより狭いものです。レストランの予約は7時に取ってあります。メニューは日本語と英
語で書いてあります。ナイフとフォークをもう一組持ってきてください。デザートはアイスクリーム
かケーキから選べます。スーパーでトマトと牛乳を買って帰りました。牛乳は1本180円でした。
レジには長い列ができていました。列の後ろで赤ちゃんが泣いていました。赤ちゃんは母親の顔を見
ると、すぐに泣きやみました。ホテルの部屋からは港が見えました。港には白い船が三つ泊まってい
ました。船は夜の11時に出発します。切符はもう買ってあります。荷物が重いので、タクシーで行
きましょう。タクシーの運転手は、この町で生まれたと言いました。カメラを持っていたのに、一枚
も撮りませんでした。美しいものは、目で見るだけ

博物館は月曜日が休みです。入口で傘を預けてから入ってください。2階には200年前の着物が並
んでいます。その絵を描いた人の名前はわかっていません。絵の中の女性は、少し悲しそうに見えま
す。音楽を聞きながら勉強するのは苦手です。ラジオから懐かしい歌が流れてきました。その歌を聞
くと、学生時代を思い出します。卒業してからもう12年になります。あのころの友達とは今も時々
会っています。みんな少しずつ年を取りました。話すことは昔とあまり変わりません。子どもの話と
仕事の話が増えただけです。帰りの電車の中で、少し眠ってしまいました。目が覚めると、知らない
駅でした。ホームには誰もいませんでした。最後の電車はもう出た後でした。仕方がないので、家ま
で2時間歩きました。月が明るくて、道がよく見え

私たちの町には、駅の前に小さな本屋があります。朝10時に開いて、夜7時に閉まります。店主は
72歳の女性で、店の本をほとんど全部読んでいます。カウンターの上には、いつもりんごの入った
かごが置いてあります。本を買った人は、一つ持って帰ることができます。昨日は一日中雨が降って
、お客さんはほとんど来ませんでした。夕方近くに、ずぶぬれの男の子が入ってきました。彼は、雨
がやむまでここで待ってもいいですかと聞きました。「もちろん」と店主は言って、タオルを渡しま
した。男の子は長い間、本棚をながめていました。彼は星についての本を探していました。店主は一
番上の棚から古い本を下ろしました。値段は800円でしたが、男の子は300円しか持っていませ
んでした。彼女は少し考えて、笑いました。「残りは読

男の子は何度もお礼を言って、本を上着の下に入れて出ていきました。雨はもうやんでいて、空は星
でいっぱいでした。今朝、店のドアの前にりんごが一つ置いてありました。その下には、一行だけ書
かれた紙がありました。「土星のところまで読みました」と書いてありました。店主はその紙をレジ
の中にしまいました。それから、まだ9時前でしたが、そのりんごを食べました。一週間後、男の子
は500円玉を手に持って戻ってきました。彼は、窓から星を47個数えたと話しました。それから
彼は、雨の日も晴れの日も、毎週土曜日に来ています。そしてカウンターの上には今、りんごのかご
と小さな地球儀が並んでいます。誰にもらったのかとお客さんに聞かれると、彼女はただほほえみま
す。売り物ではないものもあるのです、と彼女は

祖母の家は山のふもとにあり、夏になると毎年そこで二週間を過ごしました。朝は鳥の声で目が覚め
、庭の井戸で顔を洗います。水は冷たくて、手がしびれるほどでした。朝ごはんのあとは、祖母とい
っしょに畑へ行きます。きゅうりやなすをかごに入れ、虫がついていないか葉の裏を見ました。昼に
なると暑くて外にいられないので、畳の上で本を読んだり昼寝をしたりします。夕方には川へ下りて
、石を投げて遊びました。夜は空いっぱいに星が見え、祖母は星の名前を一つずつ教えてくれました
。今でも夏の夜空を見ると、あの庭と祖母の静かな声を思い出します。あの家はもうありませんが、
井戸の水の冷たさは手がまだ覚えています。今度の夏には、子どもたちを連れてあの川をたずねてみ
ようと思っています。あの夏の日々は、

図書館で働き始めて三年になります。最初の仕事は、返ってきた本を棚に戻すことでした。簡単そう
に見えますが、番号を一つ間違えると、その本は何か月も見つからなくなります。二年目からは、受
付で質問に答えるようになりました。題名を忘れてしまった人が多く、表紙の色や、むかし読んだ場
面だけを覚えています。少しずつ話を聞いて、いっしょに探すのはとても楽しい仕事です。先週は、
小学生のころに読んだ犬の話を探しているという男の人が来ました。一時間かけてその本が見つかっ
たとき、男の人は何も言わずに何度もうなずきました。本は人の記憶を預かっているのだと思います
。来月からは、子ども向けの読み聞かせの会も手伝うことになりました。今は毎晩、声を出して絵本
を読む練習をしています。これからも、

新しい自転車を買いました。前の自転車は十年も乗ったので、ブレーキの音が大きく、坂道を上るの
が大変でした。店の人は、通勤に使うなら軽いものがいいと言って、三台を並べて見せてくれました
。青い自転車は格好がよかったのですが、荷物を置く場所がありません。赤い自転車は荷物を置けま
すが、少し重いそうです。結局、かごの付いた緑の自転車を選びました。次の朝、いつもより十五分
早く家を出て、川に沿った道を走ってみました。風が気持ちよく、会社に着いたときには眠気がすっ
かり消えていました。これから雨の日以外は毎日乗るつもりです。一つだけ困ったのは、会社の自転
車置き場がいつもいっぱいだということです。同じことを考える人がこんなに多いとは知りませんで
した。明日からは、もう少し早く家を出

隣の部屋の人は、毎朝六時に同じ曲をピアノでひきます。最初はうるさいと思っていましたが、今で
はその音がないと一日が始まらない気がします。ある朝、ピアノが聞こえませんでした。次の朝も、
その次の朝も静かなままです。心配になって、夕方に戸をたたいてみました。出てきたのは若い女の
人で、右手に白い包帯をしていました。階段で転んで、指を折ってしまったのだそうです。私は毎朝
の曲が好きだと伝えました。女の人は驚いて、うるさくて怒られるのかと思ったと言って笑いました
。それから一か月がすぎ、今朝、あの曲がまた聞こえてきました。少しゆっくりで、何度か間違えま
したが、今までで一番よい演奏でした。私は窓を開けて、小さく拍手をしました。来週は、お祝いに
花を持って行くつもりです。明日の朝が

父は古い時計を直すのが趣味です。仕事から帰ると、小さな机の前に座り、ルーペを目に当てて、細
かい歯車を一つずつ調べます。部品はもう売っていないことが多いので、父は自分で作ってしまいま
す。一つの時計に半年かかることもあります。どうしてそんなに時間をかけるのかと聞くと、父は、
止まっていた時計がまた動き出す瞬間が好きなのだと答えました。去年、私の誕生日に、父は曾祖父
の懐中時計をくれました。四十年も引き出しの中で眠っていたものです。耳に当てると、とても小さ
な音が聞こえます。一日に二分ほど遅れますが、気にしていません。時間は少しくらい遅れても、ち
ゃんと進んでいくのだと父は言います。私も最近、その机の隣に自分の小さないすを置きました。い
つか自分の手で時計を直せるようになり

この町の市場は、日曜日の朝だけ開きます。夜が明けるころから車が集まり、農家の人たちが野菜や
果物を並べ始めます。八時をすぎると客が増え、通りは歩けないほどになります。私はいつも、角に
ある豆腐屋から回ります。できたての豆腐はまだ温かく、しょうゆもいりません。その隣では、漁師
の奥さんが前の日に干した魚を焼いています。煙のにおいにつられて、猫が三匹、行儀よく待ってい
ます。最後に花を一束買って、川の向こうの喫茶店で休みます。店の主人は、市場の帰りの客にはパ
ンを一切れおまけしてくれます。昼前には店はみな片付けられ、通りはまたいつもの静かな道に戻り
ます。次の日曜日まで、ここで市場が開かれるとはだれも思わないでしょう。雨の日でも、市場が休
みになったことは一度もないそうです。

冬の初めに、友だちと二人で小さな島へ行きました。船は一日に二便しかなく、乗っていたのは私た
ちと郵便局の人だけでした。島には信号も店もありません。坂の上に古い灯台があり、今はだれも住
んでいませんが、明かりだけは自動でともります。私たちは灯台の下で弁当を食べ、海を見ながら昔
の話をしました。帰りの船まで一時間ほどあったので、浜で変わった形の石を探しました。友だちは
鳥のような石を、私は半分だけ白い石を見つけました。ところが、急に風が強くなり、夕方の船は来
ないことになりました。困っていると、郵便局の人が島に住むおばあさんの家に連れて行ってくれま
した。その夜に食べた魚の汁の味は、きっと一生忘れません。翌朝、海は何もなかったように静かで
した。あの島へは、いつかまたきっと行

""",
    "",
)
