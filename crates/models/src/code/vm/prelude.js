// Runs before the program and replaces what would differ between two runs of it: the clock, the
// time zone, the random numbers and what depends on the garbage collector. Nothing of the originals
// stays within reach of the program.
(function (host) {
  "use strict";
  const { now, startedAt, random, log } = host;
  const define = (target, name, value) =>
    Object.defineProperty(target, name, { value, writable: true, enumerable: false, configurable: true });

  const NativeDate = Date;
  const proto = NativeDate.prototype;
  const { UTC, parse: nativeParse } = NativeDate;
  const dateOnly = /^\s*[+-]?\d{4,6}(-\d\d){0,2}\s*$/;
  const isoTime = /^\s*[+-]?\d{4,6}-\d\d-\d\dT/;
  const zoned = /(Z|UTC|GMT|[ECMP][SD]T|(GMT|UTC|:\d\d(\.\d+)?)\s*[+-]\d\d:?\d\d|\))\s*$/i;

  // A time without a zone is UTC, whatever the host's zone.
  const parse = (text) => {
    text = String(text);
    if (dateOnly.test(text)) return nativeParse(text);
    if (isoTime.test(text)) return nativeParse(/(Z|[+-]\d\d:?\d\d)\s*$/.test(text) ? text : text.trim() + "Z");
    return nativeParse(zoned.test(text) ? text : text + " UTC");
  };
  const moment = (value) => {
    if (typeof value === "object" && value !== null) {
      if (value instanceof NativeDate) return value.getTime();
      const plain = value.valueOf();
      value = typeof plain === "object" ? String(value) : plain;
    }
    return typeof value === "string" ? parse(value) : Number(value);
  };
  function HostDate(year, month, day, hours, minutes, seconds, ms) {
    if (new.target === undefined) return new NativeDate(now()).toString();
    const count = arguments.length;
    const at = count === 0 ? now() : count === 1 ? moment(year) : UTC(...arguments);
    return Reflect.construct(NativeDate, [at], new.target);
  }
  Object.defineProperty(HostDate, "name", { value: "Date", configurable: true });
  Object.defineProperty(HostDate, "prototype", { value: proto, writable: false });
  define(HostDate, "now", () => now());
  define(HostDate, "parse", parse);
  define(HostDate, "UTC", UTC);
  define(proto, "constructor", HostDate);
  define(globalThis, "Date", HostDate);

  for (const part of ["FullYear", "Month", "Date", "Day", "Hours", "Minutes", "Seconds", "Milliseconds"]) {
    define(proto, "get" + part, proto["getUTC" + part]);
    if (part !== "Day") define(proto, "set" + part, proto["setUTC" + part]);
  }
  delete proto.setYear;
  const two = (n) => String(n).padStart(2, "0");
  const weekdays = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
  const months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
  const shown = {
    getTimezoneOffset: () => 0,
    getYear: (d) => d.getUTCFullYear() - 1900,
    toDateString: (d) => {
      const day = `${weekdays[d.getUTCDay()]} ${months[d.getUTCMonth()]} ${two(d.getUTCDate())}`;
      return `${day} ${String(d.getUTCFullYear()).padStart(4, "0")}`;
    },
    toTimeString: (d) => `${two(d.getUTCHours())}:${two(d.getUTCMinutes())}:${two(d.getUTCSeconds())} GMT+0000 (UTC)`,
    toString: (d) => `${shown.toDateString(d)} ${shown.toTimeString(d)}`,
    toLocaleDateString: (d) => `${d.getUTCMonth() + 1}/${d.getUTCDate()}/${d.getUTCFullYear()}`,
    toLocaleTimeString: (d) => {
      const hours = d.getUTCHours();
      const clock = `${hours % 12 || 12}:${two(d.getUTCMinutes())}:${two(d.getUTCSeconds())}`;
      return `${clock} ${hours < 12 ? "AM" : "PM"}`;
    },
    toLocaleString: (d) => `${shown.toLocaleDateString(d)}, ${shown.toLocaleTimeString(d)}`,
  };
  const getTime = proto.getTime;
  for (const name of Object.keys(shown)) {
    const show = shown[name];
    const numeric = name.startsWith("get");
    define(proto, name, {
      [name]() {
        if (Number.isNaN(getTime.call(this))) return numeric ? NaN : "Invalid Date";
        return show(this);
      },
    }[name]);
  }

  define(Math, "random", () => random());
  define(globalThis, "performance", { now: () => now() - startedAt, timeOrigin: startedAt });
  delete globalThis.WeakRef;
  delete globalThis.FinalizationRegistry;

  const stringify = JSON.stringify;
  const wellFormed = Function.prototype.call.bind(String.prototype.toWellFormed);
  const show = (value) => {
    if (typeof value === "string") return value;
    if (typeof value === "function") return `[Function: ${value.name || "anonymous"}]`;
    if (value instanceof Error) return value.stack ? `${value}\n${value.stack}`.trimEnd() : String(value);
    if (typeof value === "object" && value !== null) {
      try {
        return stringify(value) ?? String(value);
      } catch {
        return Object.prototype.toString.call(value);
      }
    }
    return String(value);
  };
  const line = (prefix) => (...values) => {
    log(wellFormed(prefix + values.map(show).join(" ")));
  };
  const plain = line("");
  define(globalThis, "console", { log: plain, info: plain, debug: plain, warn: line("warn: "), error: line("error: ") });

  return wellFormed;
});
