/* src/texts/microworld.py on src/texts/programs.py: what can come next in the micro-world, and how probably? Hidden are
   the kind of a document and the mood of a review, so there are few runs of the program. `nextToken.world` holds words
   and odds, as _ext/live.py writes them from src: a choice is {option: probability}. */
"use strict";

globalThis.nextToken ??= {};

{
  const STOPPED = Symbol("the text ends, or goes on as this run cannot");

  /* Follows a text and notes, at each position, what could have come and how likely it got there. */
  class Watcher {
    constructor(text, path) {
      Object.assign(this, { text, path, taken: [], sizes: [], at: 0, logProb: 0, rows: [] });
    }

    length() {
      return this.at;
    }

    say(...words) {
      for (const word of words) this.pick({ [word]: 1 });
    }

    oneOf(options) {
      return this.pick(Object.fromEntries(options.map((word) => [word, 1 / options.length])));
    }

    pick(choice) {
      this.rows.push([this.logProb, choice]);
      const word = this.text[this.at];
      if (!Object.hasOwn(choice, word)) throw STOPPED;
      this.at += 1;
      this.logProb += Math.log(choice[word]);
      return word;
    }

    hide(choice) {
      const options = Object.keys(choice);
      const option = options[this.path[this.taken.length] ?? 0];
      this.taken.push(options.indexOf(option));
      this.sizes.push(options.length);
      this.logProb += Math.log(choice[option]);
      return option;
    }
  }

  /* After the first 0, 1, …, T words: T + 1 times {word: p}; an empty one where nothing can follow. */
  nextToken.nextWords = (program, words) => {
    const runs = [];
    const agenda = [[]];
    while (agenda.length) {
      const g = new Watcher(words, agenda.pop());
      try {
        program(g);
      } catch (stopped) {
        if (stopped !== STOPPED) throw stopped;
      }
      for (let k = g.path.length; k < g.taken.length; k += 1) {
        for (let i = 1; i < g.sizes[k]; i += 1) agenda.push([...g.taken.slice(0, k), i]);
      }
      runs.push(g.rows);
    }
    return Array.from({ length: words.length + 1 }, (_, t) => {
      const there = runs.filter((rows) => t < rows.length).map((rows) => rows[t]);
      const shares = nextToken.softmax(there.map(([before]) => before)); // p(hidden | words before)
      const mixed = {};
      there.forEach(([, choice], k) => {
        for (const [word, prob] of Object.entries(choice)) mixed[word] = (mixed[word] ?? 0) + shares[k] * prob;
      });
      return mixed;
    });
  };

  /* What a story has told so far: who is where, who has what, what lies where. */
  class Scene {
    constructor(places) {
      Object.assign(this, { places, cast: [], things: [], where: {}, holder: {}, lies: {} });
    }

    enters(g, people) {
      const who = g.oneOf(people.filter((person) => !this.cast.includes(person)));
      this.cast.push(who);
      this.where[who] = who;
      return who;
    }

    near(who) {
      const others = this.cast.filter((each) => each !== who);
      if (!this.places.includes(this.where[who])) return others;
      return others.filter((o) => this.where[o] === this.where[who] || !this.places.includes(this.where[o]));
    }

    meet(one, other) {
      let [there, here] = [this.where[one], this.where[other]];
      if (this.places.includes(there)) [there, here] = [here, there];
      for (const [person, place] of Object.entries(this.where)) if (place === there) this.where[person] = here;
    }

    placeOf(what) {
      const place = this.lies[what] ?? this.where[this.holder[what]];
      return this.places.includes(place) ? place : null;
    }
  }

  nextToken.microWorld = (world) => {
    const { END } = world;
    const kinds = { story, review, facts, translation };

    function story(g) {
      const scene = new Scene(world.places);
      for (let n = 0; n < world.things; n += 1) {
        const who = scene.enters(g, world.people);
        g.say("has", "the");
        const what = g.oneOf(world.objects.filter((o) => !(o in scene.holder)));
        scene.holder[what] = who;
        g.say(".");
      }
      for (let n = world.things; n < world.cast; n += 1) {
        const who = scene.enters(g, world.people);
        g.say("is", "in", "the");
        scene.where[who] = g.oneOf(world.places);
        g.say(".");
      }
      scene.things = Object.keys(scene.holder);
      let word = "then";
      while (!world.story_ends.includes(word)) {
        word = g.pick(g.length() <= world.longest - world.STORY_ROOM ? world.story : world.story_close);
        if (word === "then") event(g, scene);
        else if (word === "the") recap(g, scene);
        else if (word === "they") claim(g, scene);
      }
      if (word === "where") {
        g.say("is", "the");
        g.say("?", scene.placeOf(g.oneOf(scene.things)) ?? "unclear", ".", END);
      } else if (word === "who") {
        g.say("has", "the");
        g.say("?", scene.holder[g.oneOf(scene.things)] ?? "nobody", ".", END);
      }
    }

    function event(g, scene) {
      const who = g.oneOf(scene.cast);
      const { where, holder, lies } = scene;
      const here = where[who];
      const near = scene.near(who);
      const mine = scene.things.filter((what) => holder[what] === who);
      const theirs = scene.things.filter((what) => near.includes(holder[what]));
      const lying = scene.things.filter((what) => lies[what] === here);
      const can = [world.places.includes(here), ...[near, mine, theirs, lying].map((some) => some.length > 0)];
      const verb = g.pick(world.verbs[can.map((each) => (each ? "True" : "False"))]); // as Python writes them
      if (["went", "walked"].includes(verb)) {
        g.say("to", "the");
        where[who] = g.oneOf(world.elsewhere[here] ?? world.places);
      } else if (["gave", "handed"].includes(verb)) {
        g.say("the");
        const what = g.oneOf(mine);
        g.say("to");
        holder[what] = g.oneOf(near);
        scene.meet(who, holder[what]);
      } else if (["got", "received"].includes(verb)) {
        g.say("the");
        const what = g.oneOf(theirs);
        g.say("from", holder[what]);
        scene.meet(who, holder[what]);
        holder[what] = who;
      } else if (["dropped", "left"].includes(verb)) {
        g.say("the");
        const what = g.oneOf(mine);
        delete holder[what];
        lies[what] = here;
      } else if (["took", "grabbed"].includes(verb)) {
        g.say("the");
        const what = g.oneOf(lying);
        delete lies[what];
        holder[what] = who;
      } else if (verb === "is") {
        g.say("in", "the", here);
      } else {
        g.say("a");
        g.oneOf([...new Set(mine.map((o) => world.kind_of[o]))].sort());
      }
      g.say(".");
    }

    function recap(g, scene) {
      const what = g.oneOf(scene.things);
      g.say("is");
      const [who, place] = [scene.holder[what], scene.placeOf(what)];
      const ways = { ...(who && { with: [who] }), ...(place && { in: ["the", place] }) };
      g.say(...ways[g.oneOf(Object.keys(ways))], ".");
    }

    function claim(g, scene) {
      g.say("say");
      const who = g.oneOf(scene.cast);
      let verdict;
      if (g.oneOf(["is", "has"]) === "is") {
        g.say("in", "the");
        const here = scene.where[who];
        const claimed = g.pick(world.around[here] ?? world.anywhere);
        verdict = world.places.includes(here) ? String(claimed === here) : "unclear";
      } else {
        g.say("the");
        verdict = String(scene.holder[g.oneOf(scene.things)] === who);
      }
      g.say(":", verdict, ".");
    }

    function review(g) {
      const mood = g.hide(world.moods);
      const [adjective, degree] = [world.adjectives[mood], world.degrees[mood]];
      g.say("this");
      const aspects = world.ASPECTS[g.oneOf(world.topics)];
      g.say("was");
      let word = g.pick(adjective);
      while (!world.review_ends.includes(word)) {
        g.say(".");
        word = g.pick(g.length() <= world.longest - world.REVIEW_ROOM ? world.review : world.review_close);
        if (word === "the") {
          g.oneOf(aspects);
          g.say("was");
          if (world.ADVERBS.includes(g.pick(degree))) g.pick(adjective);
        } else if (word === "i") {
          g.say("found", "the");
          g.oneOf(aspects);
          g.pick(adjective);
        } else if (word === "it") {
          g.say("was");
          g.pick(adjective);
          g.say("and");
          g.pick(adjective);
        }
      }
      if (word === "is") g.say("this", "praise", "?", mood === "praise" ? "yes" : "no", ".", END);
    }

    function facts(g) {
      let word = g.pick(world.fact_first);
      while (["the", "in"].includes(word)) {
        let [attribute, country] = [];
        if (word === "the") {
          attribute = g.oneOf(world.ATTRIBUTES);
          g.say("of");
          country = g.pick(world.country);
        } else {
          country = g.pick(world.country);
          g.say("the");
          attribute = g.oneOf(world.ATTRIBUTES);
        }
        g.say("is", world.value[[country, attribute]], ".");
        word = g.pick(g.length() <= world.longest - world.FACT_ROOM ? world.fact : world.fact_close);
      }
      if (word === "what") {
        g.say("is", "the");
        const attribute = g.oneOf(world.askable);
        g.say("of");
        const country = g.pick(world.asked[attribute]);
        g.say("?", world.value[[country, attribute]], ".", END);
      }
    }

    function translation(g) {
      const { ZORB } = world;
      let word = g.pick(world.line_first);
      while (word !== END) {
        if (word === "say") {
          const [who, act] = [g.oneOf(world.people), g.oneOf(world.paired_acts)];
          g.say("the");
          const what = g.oneOf(world.paired[act]);
          g.say("in", "zorb", ":", ZORB[who], ZORB[what], ZORB[act], ".");
        } else {
          g.say(":");
          for (const words of world.zorb) g.oneOf(words);
          g.say(".");
        }
        word = g.pick(g.length() <= world.longest - world.LINE_ROOM ? world.line : world.line_close);
      }
    }

    return (g) => kinds[g.hide(world.kinds)](g);
  };
}
