LEVEL = 1

CLOSING = "I have more for you after that. When there is nothing left, write <answer>done</answer>."

STUDENTS = {1: 3, 2: 3, 3: 4}[LEVEL]
COURSES = ("algebra", "botany", "chemistry", "drawing", "ethics", "fencing", "geology", "history")
PEOPLE = ("Adil", "Berit", "Ciro", "Dunja", "Espen", "Finja", "Goran", "Hilda", "Ilja")


class CourseOfficeEnv(ToolEnv):
    """Enrol students: what a course requires, whether it is full and what it costs decides the next step."""

    max_turns = {1: 20, 2: 22, 3: 25}[LEVEL]
    tools = {
        "student": {
            "description": "courses a student has passed, and the fee class",
            "parameters": {"name": "string"},
        },
        "course": {
            "description": "requirement, free places and fees of a course",
            "parameters": {"name": "string"},
        },
        "enrol": {
            "description": "enrol a student in a course",
            "parameters": {"student": "string", "course": "string"},
        },
        "wait_list": {
            "description": "put a student on the waiting list",
            "parameters": {"student": "string", "course": "string"},
        },
        "charge": {
            "description": "charge a student a fee",
            "parameters": {"student": "string", "crowns": "integer"},
        },
        "confirm": {
            "description": "send the confirmation; the last step",
            "parameters": {"student": "string", "course": "string"},
        },
    }

    def setup(self, rng):
        courses, people = rng.sample(COURSES, len(COURSES)), rng.sample(PEOPLE, STUDENTS)
        needs = {c: rng.choice([o for o in courses if o != c]) for c in courses}
        fees = {c: (rng.randint(110, 480), rng.randint(30, 99)) for c in courses}
        full = {c: (k % 3 == 0) if LEVEL < 3 else rng.random() < 0.4 for k, c in enumerate(courses)}
        passed, reduced = {}, {}
        self.state = {
            "needs": needs,
            "fees": fees,
            "full": full,
            "passed": passed,
            "reduced": reduced,
            "log": [],
        }
        self.tasks, self.plan, log = [], [], []
        for k, who in enumerate(people):
            wish = courses[k]
            lacks = LEVEL > 1 and (k % 2 == 1)
            passed[who] = rng.sample([c for c in courses if c not in (wish, needs[wish])], 2) + (
                [] if lacks else [needs[wish]]
            )
            rng.shuffle(passed[who])
            reduced[who] = rng.random() < 0.5
            self.plan += [self.call("student", name=who), self.call("course", name=wish)]
            target = wish
            if lacks:
                target = needs[wish]
                self.plan.append(self.call("course", name=target))
            if full[target]:
                log = [*log, ("wait_list", who, target)]
                self.plan.append(self.call("wait_list", student=who, course=target))
            else:
                crowns = fees[target][0] - (fees[target][1] if reduced[who] else 0)
                log = [*log, ("enrol", who, target), ("charge", who, crowns)]
                self.plan += [
                    self.call("enrol", student=who, course=target),
                    self.call("charge", student=who, crowns=crowns),
                ]
            log = [*log, ("confirm", who, target)]
            self.plan.append(self.call("confirm", student=who, course=target))
            other = (
                ""
                if LEVEL == 1
                else "; whoever lacks what it requires gets the required course instead, whatever that one requires"
            )
            text = (
                f"{who} would like to take {wish}. If there is a place, enrol and then charge the fee; if there is none, use "
                f"the waiting list, which is free{other}. Confirm what was done."
            )
            self.tasks.append((text, lambda s, w=log: s["log"] == w))
        self.tasks[0] = (f"{self.tasks[0][0]} {CLOSING}", self.tasks[0][1])
        self.plan.append(self.answer)

    def tool_student(self, name):
        if name not in self.state["passed"]:
            return "error: no such student"
        kind = "reduced fee" if self.state["reduced"][name] else "full fee"
        return f"{name}: passed {', '.join(self.state['passed'][name])}; {kind}"

    def tool_course(self, name):
        if name not in self.state["needs"]:
            return "error: no such course"
        fee, less = self.state["fees"][name]
        places = "no places left" if self.state["full"][name] else "places free"
        return f"{name}: requires {self.state['needs'][name]}, {places}, {fee} crowns ({less} less with reduced fee)"

    def note(self, kind, student, what):
        if student not in self.state["passed"]:
            return "error: no such student"
        if kind != "charge" and what not in self.state["needs"]:
            return "error: no such course"
        if kind == "enrol" and self.state["full"][what]:
            return "refused: no places left"
        self.state["log"] = [*self.state["log"], (kind, student, what)]
        return f"{kind.replace('_', ' ')}: {student}, {what}"

    def tool_enrol(self, student, course):
        return self.note("enrol", student, course)

    def tool_wait_list(self, student, course):
        return self.note("wait_list", student, course)

    def tool_charge(self, student, crowns):
        return self.note("charge", student, crowns)

    def tool_confirm(self, student, course):
        return self.note("confirm", student, course)

    def solution(self):
        return self.plan

    def hint(self):
        return "Read the student and the course before the first change; a waiting list is never charged."
