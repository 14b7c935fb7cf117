-- The shop as it is before the desk opens: what was sold, and what has been paid back already.
CREATE TABLE orders (
    order_id   TEXT PRIMARY KEY,
    customer   TEXT NOT NULL,
    item       TEXT NOT NULL,
    paid_cents INTEGER NOT NULL CHECK (paid_cents > 0),
    status     TEXT NOT NULL CHECK (status IN ('paid', 'shipped', 'returned', 'lost', 'refunded'))
);

INSERT INTO orders VALUES
    ('A-1001', 'Müller, Zoë',          'wine glasses, set of 6',  4990, 'shipped'),
    ('A-1002', 'Nguyễn Thị Hoa',       'jacket, regular fit',    12000, 'returned'),
    ('A-1003', 'O''Brien, Siobhán',    'mug, green',              2345, 'shipped'),
    ('A-1004', 'Łukasz Żółty',         'armchair',               32000, 'lost'),
    ('A-1005', 'Haddad, Rania',        'bookshelf',               8900, 'shipped'),
    ('A-1006', 'Müller & Söhne GmbH',  'desk lamp',               6400, 'refunded'),
    ('A-1007', 'Jensen, Pål',          'rug, 2 x 3 m',           21000, 'shipped'),
    ('A-1008', 'Dr. Ama Owusu',        'espresso machine',      124900, 'shipped'),
    ('A-1009', '山田 太郎',             'picture frame',           3500, 'paid'),
    ('A-1010', 'Prado, Inés "Nena"',   'table lamp, set of 2',    9000, 'shipped');
