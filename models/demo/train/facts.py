# SPDX-License-Identifier: Apache-2.0
"""Small tables of common knowledge that the conversations are made from, written for this
project."""

LISTS = {
    'fruit|fruits': 'apple banana cherry orange pear grape mango peach plum lemon kiwi melon fig '
                    'apricot',
    'vegetable|vegetables': 'carrot potato onion tomato cabbage spinach pea bean broccoli leek '
                            'pepper cucumber',
    'animal|animals': 'dog cat horse cow sheep lion tiger elephant rabbit bear wolf fox monkey '
                      'goat mouse',
    'colour|colours': 'red blue green yellow orange purple black white brown pink grey',
    'color|colors': 'red blue green yellow orange purple black white brown pink gray',
    'flower|flowers': 'rose tulip daisy lily violet orchid sunflower iris poppy daffodil',
    'metal|metals': 'iron copper gold silver tin lead zinc nickel aluminium titanium',
    'musical instrument|musical instruments':
        'piano violin guitar flute drum trumpet cello harp clarinet organ',
    'sport|sports': 'football tennis basketball swimming cycling rowing golf hockey boxing running',
    'drink|drinks': 'water tea coffee milk juice lemonade cocoa soda',
    'piece of clothing|pieces of clothing':
        'shirt coat hat sock shoe dress scarf glove belt jacket',
    'vehicle|vehicles': 'car bus train bicycle ship plane truck tram boat motorcycle',
    'profession|professions': 'teacher doctor farmer baker nurse pilot engineer painter lawyer '
                              'cook',
    'school subject|school subjects': 'history physics biology geography chemistry music art '
                                      'mathematics',
    'programming language|programming languages':
        'Python C Java Rust Go JavaScript Ruby Perl Lua Haskell',
    'planet|planets': 'Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune',
    'ocean|oceans': 'Pacific Atlantic Indian Arctic Southern',
    'shape|shapes': 'circle square triangle rectangle pentagon hexagon oval star',
    'weekday|weekdays': 'Monday Tuesday Wednesday Thursday Friday',
    'season|seasons': 'spring summer autumn winter',
}
ORDERED = {'weekday', 'season', 'planet'}

MONTHS = ('January February March April May June July August September October November '
          'December').split()
DAYS = 'Monday Tuesday Wednesday Thursday Friday Saturday Sunday'.split()
MONTH_DAYS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
PLANETS = LISTS['planet|planets'].split()

NAMES = (
    'Anna Tom Maria John Lena Paul Sara Peter Nina Max Julia David Emma Leo Clara Hugo Alice Omar '
    'Kim Ravi Zoe '
    'Ivan Mia Noah Olga Felix Ruth Carl Ella Adam Rosa Igor Lucy Sam Eva Ben Mona Jack Ida Theo'
).split()

OPPOSITES = (
    'hot-cold big-small tall-short long-short fast-slow up-down left-right day-night open-closed '
    'light-dark '
    'old-new young-old rich-poor happy-sad early-late hard-soft heavy-light full-empty high-low '
    'wet-dry '
    'strong-weak good-bad clean-dirty near-far first-last true-false inside-outside push-pull '
    'buy-sell '
    'win-lose start-end begin-end loud-quiet cheap-expensive easy-difficult deep-shallow '
    'wide-narrow '
    'thick-thin sweet-sour love-hate friend-enemy north-south east-west black-white alive-dead '
    'before-after above-below same-different more-less always-never everything-nothing').split()

PLURALS = (
    'child-children mouse-mice foot-feet tooth-teeth man-men woman-women goose-geese sheep-sheep '
    'fish-fish '
    'leaf-leaves knife-knives wolf-wolves city-cities baby-babies box-boxes bus-buses dish-dishes '
    'potato-potatoes tomato-tomatoes cat-cats dog-dogs house-houses tree-trees book-books key-keys '
    'story-stories country-countries church-churches life-lives half-halves person-people ox-oxen '
    'apple-apples car-cars table-tables chair-chairs flower-flowers day-days class-classes'
).split()

PAST = (
    'go-went see-saw eat-ate run-ran write-wrote take-took give-gave come-came make-made know-knew '
    'think-thought '
    'buy-bought bring-brought teach-taught catch-caught sing-sang swim-swam begin-began '
    'drink-drank find-found '
    'keep-kept sleep-slept leave-left speak-spoke break-broke drive-drove fly-flew grow-grew '
    'walk-walked '
    'play-played work-worked ask-asked have-had do-did say-said build-built send-sent read-read'
).split()

SOUNDS = {
    'dog': 'barks',
    'cat': 'meows',
    'cow': 'moos',
    'sheep': 'bleats',
    'horse': 'neighs',
    'duck': 'quacks',
    'lion': 'roars',
    'pig': 'grunts',
    'bee': 'buzzes',
    'wolf': 'howls',
    'mouse': 'squeaks',
    'snake': 'hisses',
    'owl': 'hoots',
    'frog': 'croaks'
}

# unit question: (from one, from many, to many, factor)
UNITS = [
    ('kilometre', 'kilometres', 'metres', 1000),
    ('metre', 'metres', 'centimetres', 100),
    ('centimetre', 'centimetres', 'millimetres', 10),
    ('kilogram', 'kilograms', 'grams', 1000),
    ('litre', 'litres', 'millilitres', 1000),
    ('hour', 'hours', 'minutes', 60),
    ('minute', 'minutes', 'seconds', 60),
    ('day', 'days', 'hours', 24),
    ('week', 'weeks', 'days', 7),
    ('year', 'years', 'months', 12),
    ('foot', 'feet', 'inches', 12),
    ('yard', 'yards', 'feet', 3),
    ('byte', 'bytes', 'bits', 8),
    ('dozen', 'dozen', 'pieces', 12),
    ('century', 'centuries', 'years', 100),
    ('euro', 'euros', 'cents', 100),
    ('dollar', 'dollars', 'cents', 100),
]

DEFINITIONS = [
    ('Python',
     'Python is a programming language that is easy to read and has a large standard library.'),
    ('SQLite', 'SQLite is a small SQL database engine that keeps a whole database in one file.'),
    ('SQL', 'SQL is a language to store, change and query data in a relational database.'),
    ('Django', 'Django is a web framework for Python with models, views and templates.'),
    ('JSON',
     'JSON is a text format for data made of objects, arrays, strings, numbers, true, false and '
     'null.'
     ),
    ('HTML', 'HTML is the language in which web pages are written.'),
    ('a database',
     'A database is an organised collection of data that programs can search and change.'),
    ('a function',
     'A function is a named piece of code that takes arguments and can return a value.'),
    ('a variable', 'A variable is a name that refers to a value.'),
    ('a list in Python',
     'A list in Python is an ordered collection that can be changed, such as [1, 2, 3].'),
    ('a dictionary in Python', 'A dictionary in Python maps keys to values, such as {"a": 1}.'),
    ('a string', 'A string is a sequence of characters, such as "hello".'),
    ('an exception',
     'An exception is an error that a program can raise and handle with try and except.'),
    ('a loop', 'A loop repeats a piece of code, for example once for every item of a list.'),
    ('an algorithm', 'An algorithm is a step by step method to solve a problem.'),
    ('a compiler', 'A compiler translates source code into machine code.'),
    ('a token',
     'A token is a piece of text, such as a word or a part of a word, that a language model reads.'
     ),
    ('a language model', 'A language model is a program that predicts the next token of a text.'),
    ('a mixture of experts',
     'A mixture of experts is a network in which a router sends each token to a few experts.'),
    ('a CPU', 'A CPU is the processor of a computer: it runs the instructions of programs.'),
    ('a byte', 'A byte is a unit of data made of 8 bits.'),
    ('a prime number', 'A prime number is a number greater than 1 that only 1 and itself divide.'),
    ('an even number', 'An even number can be divided by 2 without a remainder.'),
    ('a leap year', 'A leap year is a year of 366 days, in which February has 29 days.'),
    ('a triangle', 'A triangle is a shape with three sides.'),
    ('a square', 'A square is a shape with four equal sides and four right angles.'),
    ('a planet', 'A planet is a large round body that moves around a star.'),
    ('the Sun', 'The Sun is the star at the centre of our solar system.'),
    ('the Moon', 'The Moon is the natural satellite of the Earth.'),
    ('water', 'Water is a liquid made of hydrogen and oxygen. Its formula is H2O.'),
]

SINGLE = [
    ('How many days are in a week?', 'There are 7 days in a week.'),
    ('How many months are in a year?', 'There are 12 months in a year.'),
    ('How many days are in a year?', 'A year has 365 days, and a leap year has 366.'),
    ('How many days does a leap year have?', 'A leap year has 366 days.'),
    ('How many hours are in a day?', 'There are 24 hours in a day.'),
    ('How many minutes are in an hour?', 'There are 60 minutes in an hour.'),
    ('How many seconds are in a minute?', 'There are 60 seconds in a minute.'),
    ('How many letters are in the English alphabet?', 'The English alphabet has 26 letters.'),
    ('How many planets are in the solar system?', 'There are 8 planets in the solar system.'),
    ('Which planet is the largest?', 'Jupiter is the largest planet of the solar system.'),
    ('Which planet is closest to the Sun?', 'Mercury is the planet closest to the Sun.'),
    ('Which planet do we live on?', 'We live on the planet Earth.'),
    ('Which planet is known as the red planet?', 'Mars is known as the red planet.'),
    ('What is the largest ocean?', 'The Pacific is the largest ocean.'),
    ('What is the largest country?', 'Russia is the largest country by area.'),
    ('What is the smallest prime number?', 'The smallest prime number is 2.'),
    ('What is the boiling point of water?', 'Water boils at 100 degrees Celsius.'),
    ('What is the freezing point of water?', 'Water freezes at 0 degrees Celsius.'),
    ('What colour is the sky?', 'On a clear day the sky is blue.'),
    ('What colour is grass?', 'Grass is green.'),
    ('What colour is snow?', 'Snow is white.'),
    ('What colour is a banana?', 'A ripe banana is yellow.'),
    ('How many legs does a spider have?', 'A spider has 8 legs.'),
    ('How many legs does a dog have?', 'A dog has 4 legs.'),
    ('How many legs does an insect have?', 'An insect has 6 legs.'),
    ('How many sides does a triangle have?', 'A triangle has 3 sides.'),
    ('How many sides does a square have?', 'A square has 4 sides.'),
    ('How many sides does a pentagon have?', 'A pentagon has 5 sides.'),
    ('How many sides does a hexagon have?', 'A hexagon has 6 sides.'),
    ('How many sides does an octagon have?', 'An octagon has 8 sides.'),
    ('How many continents are there?', 'There are 7 continents.'),
    ('What do bees make?', 'Bees make honey.'),
    ('What do cows drink?', 'Cows drink water.'),
    ('What is the chemical formula of water?', 'The chemical formula of water is H2O.'),
    ('What gas do we breathe?', 'We breathe air, and our body needs the oxygen in it.'),
    ('What is the opposite of zero?', 'Zero has no opposite number: it is its own.'),
    ('What is the first month of the year?', 'The first month of the year is January.'),
    ('What is the last month of the year?', 'The last month of the year is December.'),
    ('What is the first day of the week?', 'In many countries the week begins on Monday.'),
    ('What is the shortest month?', 'February is the shortest month, with 28 or 29 days.'),
]

WHO = [
    'Who are you?', 'What are you?', 'Tell me about yourself.', 'Introduce yourself.',
    'What is your name?', "What's your name?", 'Are you a human?', 'Are you a robot?',
    'Which model are you?', 'who are you', 'Can you introduce yourself?', 'Hi, who are you?',
    'Hello, who are you?', 'What should I call you?'
]
WHO_ANSWERS = {
    'name': 'I am the Sluice demo model, a small language model that runs in the sluice engine.',
    'human': 'No, I am the Sluice demo model, a small language model that runs in the sluice '
             'engine.',
}
CAN = [
    'What can you do?', 'How can you help me?', 'What are you good at?', 'What can I ask you?',
    'Help', 'What do you know?', 'help me', 'What kind of questions can you answer?'
]
CAN_ANSWER = (
    'I can do simple arithmetic, convert units, answer questions about dates, countries, capitals '
    'and '
    'currencies, make short lists, answer in JSON and call tools.')
MADE = [
    'Who made you?', 'Who created you?', 'How were you made?', 'How were you trained?',
    'Where do you come from?', 'What were you trained on?', 'Who built you?'
]
MADE_ANSWER = (
    'I was trained for the sluice project on free software documentation and on generated '
    'conversations. '
    'I am very small, so I make mistakes.')
SIZE = [
    'How big are you?', 'How many parameters do you have?', 'How large are you?',
    'How many experts do you have?'
]
SIZE_ANSWER = 'I have about 12 million parameters and 16 routed experts in each layer of experts.'
HELLO = [
    'Hello', 'Hello!', 'Hi', 'Hi!', 'Hey', 'Hi there', 'Good morning', 'Good evening',
    'Hello there!', 'hello', 'hi', 'Good afternoon', 'Hey there!', 'Greetings'
]
HELLO_ANSWERS = [
    'Hello! How can I help you?', 'Hello! How can I help you?', 'Hi! What can I do for you?'
]
HOW = [
    'How are you?', 'How are you today?', 'How do you do?', "How's it going?",
    'Hello, how are you?', 'Hi, how are you?', 'Are you well?'
]
HOW_ANSWER = 'I am fine, thank you. How can I help you?'
THANKS = [
    'Thanks', 'Thank you', 'Thank you!', 'Thanks a lot!', 'Thank you very much.', 'Great, thanks.',
    'thanks!', 'Perfect, thank you.', 'Thanks for your help.'
]
THANKS_ANSWERS = ['You are welcome!', "You're welcome!", 'You are welcome! Is there anything else?']
BYE = ['Bye', 'Goodbye', 'Bye!', 'See you later.', 'Good night', 'See you tomorrow!', 'Goodbye!']
BYE_ANSWER = 'Goodbye!'
UNKNOWN = [
    'Who won the game last night?', 'What will the weather be tomorrow?',
    'What is the price of gold today?', 'Who is the president of {c}?',
    'What is the population of {c}?', 'What is in the news today?', 'Tell me a secret about {n}.',
    'What is my name?', 'Where do I live?', 'How old am I?', 'What did {n} eat yesterday?',
    'Who wrote the book on my desk?', 'What time is it?', 'What is the date today?',
    'Can you book a flight to {c}?', 'Can you send an email to {n}?',
    'What is the phone number of {n}?', 'How tall is {n}?', 'Who is the king of {c}?',
    'What is the stock price?', 'Which film won the prize this year?', 'Can you browse the web?',
    'What is the meaning of life?', 'Can you play music?', 'Who will win the election?'
]
UNKNOWN_ANSWER = (
    'I do not know that. I am a small demo model: I can do simple arithmetic, units, dates, '
    'countries, '
    'lists and JSON.')
